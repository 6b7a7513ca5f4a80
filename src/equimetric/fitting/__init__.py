"""From a folder of images to an exported model: data, plan, choice, training, threshold, test, report.

May use everything but the command line; decides what the other rooms leave to their user.

* `inspection`  what a folder or a list holds
* `parts`       which classes train, choose, normalise, calibrate and test
* `plan`        the configuration that follows
* `budget`      the time
* `choice`      trials on folds of training and validation classes
* `normalization`  whether a cohort normalises similarities
* `outcome`     the test classes, opened once
* `configurations`  files for `train` and `compare`
* `report`      one page
* `fit`         all of it
"""

from equimetric.fitting.fit import FitResult, fit_model
from equimetric.fitting.plan import Plan, make_plan

__all__ = ["FitResult", "Plan", "fit_model", "make_plan"]
