"""Every geometry as a function: the value of `geometry=` of an objective."""

from equimetric.constructors.kind import open_namespace
from equimetric.constructors.objective_kinds import GEOMETRY_FUNCTIONS

__getattr__, __dir__ = open_namespace(GEOMETRY_FUNCTIONS)
