"""Identification, 1:N with unknowns: probes with a mate in the gallery, and strangers, who should match no entry.

Knows embeddings and labels only; one scan searches every probe in every draw of the gallery.

* `identification`  `evaluate_identification` and its result
* `protocol`        enrolment, strangers, and the rule that names a probe
* `draws`           random galleries out of labelled sets
* `search`          the scan: nearest items, exact; `templates`: class means
* `scores`          results of the searches, before a threshold
* `rates`           FPIR and FNIR at thresholds, and the threshold of an FPIR
* `jackknife`       the rates without each class: standard errors, intervals, bounds
* `points`          both rates at one threshold, with their intervals
* `gallery_sizes`   the rates over the number of identities
* `plots`           figures of both
"""

from equimetric.evaluation.identification.gallery_sizes import GallerySize, GallerySizeCurve, gallery_size_curve
from equimetric.evaluation.identification.identification import Identification, evaluate_identification
from equimetric.evaluation.identification.points import IdentificationRates
from equimetric.evaluation.identification.protocol import IdentificationProtocol

__all__ = [
    "GallerySize",
    "GallerySizeCurve",
    "Identification",
    "IdentificationProtocol",
    "IdentificationRates",
    "evaluate_identification",
    "gallery_size_curve",
]
