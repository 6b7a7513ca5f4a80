"""Galleries: vectors that are searched exactly, and decided by a certificate.

Builds on `calibration`; knows vectors, ids and certificates, not models.

* `gallery`       `Gallery`: add, remove, search, identify, verify; the same whatever the store
* `stores`        where items are kept: `embedded` in files of their own, in `lance` or in `qdrant`
* `rescored`      exact answers from products that a database computes in float32
* `model_record`  which model made the vectors, and where it is
* `certificates`  what a gallery was made under, and what it refuses
* `comparison`    a certificate's distance or score, as an inner product and a shift
* `codes`         int8 codes, and the bound of their error
* `tiles`         products of codes, or of float32 vectors, with their error
* `kernel`        which of both is faster here
* `candidates`    the items that the bounds leave open
* `scan`          how they are found for some queries, and in `single_scan` for one
* `search`        their exact scores, and the order
* `manifest`      the truth about which files count
* `number_files`  vectors and codes, `items` ids and metadata
* `snapshot`      all files of one commit
* `block_checksums`  whether files are what was written
* `writing`       changes that survive a kill
* `working_memory` what a search gives back
"""

from equimetric.gallery.gallery import Gallery, Identity, Match

__all__ = ["Gallery", "Identity", "Match"]
