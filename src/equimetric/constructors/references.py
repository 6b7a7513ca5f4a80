"""Every kind of references as a function: the value of `references=` of an objective."""

from equimetric.constructors.kind import open_namespace
from equimetric.constructors.objective_kinds import REFERENCE_FUNCTIONS

__getattr__, __dir__ = open_namespace(REFERENCE_FUNCTIONS)
