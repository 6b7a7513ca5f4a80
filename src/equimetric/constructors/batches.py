"""Every batch sampler as a function of labels: the `batch_sampler` of a `DataLoader`."""

from equimetric.constructors.kind import open_namespace
from equimetric.constructors.training_kinds import BATCH_FUNCTIONS

__getattr__, __dir__ = open_namespace(BATCH_FUNCTIONS)
