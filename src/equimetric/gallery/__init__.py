"""The embedded gallery: vectors on disk, searched exactly, decided by a certificate.

Builds on `calibration`; knows vectors, ids and certificates, not models.

* `gallery`       `Gallery`: add, remove, search, identify, verify
* `certificates`  what a gallery was made under, and what it refuses
* `comparison`    a certificate's distance or score, as an inner product and a shift
* `codes`         int8 codes, and the bound of their error
* `tiles`         products of codes, or of float32 vectors, with their error
* `kernel`        which of both is faster here
* `scan`          the items that the bounds leave open
* `search`        their exact scores, and the order
* `manifest`      the truth about which files count
* `number_files`  vectors and codes, `items` ids and metadata
* `snapshot`      all files of one commit
* `writing`       changes that survive a kill
"""

from equimetric.gallery.gallery import Gallery, Identity, Match

__all__ = ["Gallery", "Identity", "Match"]
