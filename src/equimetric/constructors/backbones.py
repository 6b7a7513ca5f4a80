"""Every backbone as a function: images to features."""

from equimetric.constructors.kind import open_namespace
from equimetric.constructors.training_kinds import BACKBONE_FUNCTIONS

__getattr__, __dir__ = open_namespace(BACKBONE_FUNCTIONS)
