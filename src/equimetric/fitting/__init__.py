"""From a folder of images to an exported model: data, plan, choice, training, threshold, test, report.

May use everything but the command line; makes the choices that the other rooms leave to their user.

* `inspection`      findings on a folder or a list of images
* `class_split`     classes that train, select, normalise, calibrate and test
* `plan`            the configuration that follows
* `budget`          the time budget
* `choice`          trials on folds of training and validation classes
* `normalization`   whether a cohort normalises similarities
* `outcome`         results on the test classes, opened once
* `configurations`  files for `train` and `compare`
* `report`          the HTML report
* `fit`             the whole fit
"""

from equimetric.fitting.fit import FitResult, fit_model
from equimetric.fitting.plan import Plan, make_plan

__all__ = ["FitResult", "Plan", "fit_model", "make_plan"]
