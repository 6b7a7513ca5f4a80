"""One distance threshold for all classes, with the error rates of classes that were held out.

Builds on `evaluation`; knows embeddings and labels only.

* `calibrate`           the threshold of a target false accept rate, fitted and held out
* `rates`               false accept and false reject rates of classes and data sets, with bounds
* `threshold_interval`  how far the threshold varies with the classes
* `result`              `Calibration`, what `calibrate` returns
* `identification`      the threshold of a false positive identification rate, 1:N with strangers
* `certificate`         the JSON file of a calibration, saved and loaded
"""

from equimetric.calibration.calibrate import calibrate, data_fingerprint
from equimetric.calibration.certificate import Certificate
from equimetric.calibration.identification import IdentificationCertificate, calibrate_identification
from equimetric.calibration.rates import ErrorRates
from equimetric.calibration.result import Calibration

__all__ = [
    "Calibration",
    "Certificate",
    "ErrorRates",
    "IdentificationCertificate",
    "calibrate",
    "calibrate_identification",
    "data_fingerprint",
]
