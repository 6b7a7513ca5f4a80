"""Every selection as a function: the value of `selection=` of an objective."""

from equimetric.constructors.kind import open_namespace
from equimetric.constructors.objective_kinds import SELECTION_FUNCTIONS

__getattr__, __dir__ = open_namespace(SELECTION_FUNCTIONS)
