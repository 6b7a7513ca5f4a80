"""One distance threshold for all classes, with the error rates of classes that were held out.

Builds on `evaluation`; knows embeddings and labels only.

* `calibrate`           the threshold of a target, fitted and held out
* `targets`             what a threshold is chosen for: a false accept or false reject rate, or the least cost
* `threshold_interval`  how far the threshold varies with the classes
* `rates`               false accept and false reject rates of classes and data sets, with bounds
* `two_way_rates`       what each class accepts at a threshold, as two-way tables, in bounded memory
* `class_bounds`        which classes exceed a rate by more than noise
* `new_classes`         what the threshold promises for classes not seen yet
* `drift`               whether unlabelled embeddings are distributed like those used for calibration
* `result`              `Calibration`, what `calibrate` returns
* `identification`      the threshold of a false positive identification rate, 1:N with strangers
* `certificate`         `Certificate`: what was calibrated, for whom; decides, checks, refuses
* `certificate_base`    what every certificate does with its threshold
* `certificate_file`    its JSON document, `certificate_text` its text
* `plots`               figures of a calibration
"""

from equimetric.calibration.calibrate import calibrate, data_fingerprint
from equimetric.calibration.certificate import Certificate
from equimetric.calibration.drift import DriftCheck
from equimetric.calibration.identification import IdentificationCertificate, calibrate_identification
from equimetric.calibration.new_classes import NewClassBounds
from equimetric.calibration.rates import ErrorRates
from equimetric.calibration.result import Calibration

__all__ = [
    "Calibration",
    "Certificate",
    "DriftCheck",
    "ErrorRates",
    "IdentificationCertificate",
    "NewClassBounds",
    "calibrate",
    "calibrate_identification",
    "data_fingerprint",
]
