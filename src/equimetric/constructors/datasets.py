"""Every data set as a function of its options."""

from equimetric.constructors.kind import open_namespace
from equimetric.constructors.training_kinds import DATASET_FUNCTIONS

__getattr__, __dir__ = open_namespace(DATASET_FUNCTIONS)
