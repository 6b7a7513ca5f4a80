"""Every method as a function: `losses.triplet(margin=0.1)` is `objective("triplet", margin=0.1)`."""

from equimetric.constructors.kind import open_namespace
from equimetric.constructors.objective_kinds import LOSS_FUNCTIONS

__getattr__, __dir__ = open_namespace(LOSS_FUNCTIONS)
