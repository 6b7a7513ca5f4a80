"""Every learner as a function of its options: the value of `learner` in a configuration."""

from equimetric.constructors.kind import open_namespace
from equimetric.constructors.training_kinds import LEARNER_FUNCTIONS

__getattr__, __dir__ = open_namespace(LEARNER_FUNCTIONS)
