"""Galleries: exact vector search with decisions by a certificate.

Builds on `calibration`; knows vectors, ids and certificates, not models.

* `gallery`       `Gallery`: add, remove, search, identify, verify; the same whatever the store
* `stores`        where items are kept: `embedded` in files of their own, in `lance` or in `qdrant`
* `rescored`      exact answers from products that a database computes in float32
* `model_record`  the model that made the vectors, and its folder
* `certificates`  the certificates of a gallery
* `comparison`    a certificate's distance or score, as an inner product and a shift
* `codes`         int8 codes, and the bound of their error
* `tiles`         products of codes, or of float32 vectors, with their error
* `kernel`        the faster of both on this machine
* `candidates`    items that may match, by the bounds
* `scan`          finds candidates for several queries, `single_scan` for one
* `search`        exact scores and order of the candidates
* `manifest`      the files of a commit and their valid rows
* `array_files`   vectors and codes, `items` ids and metadata
* `snapshot`      all files of one commit
* `block_checksums`  detect changed files
* `writing`       crash-safe changes
* `working_memory`  returns freed memory to the system
"""

from equimetric.gallery.gallery import Gallery, Identity, Match

__all__ = ["Gallery", "Identity", "Match"]
