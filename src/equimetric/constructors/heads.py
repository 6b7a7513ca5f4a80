"""Every head as a function of its sizes: features to embeddings."""

from equimetric.constructors.kind import open_namespace
from equimetric.constructors.training_kinds import HEAD_FUNCTIONS

__getattr__, __dir__ = open_namespace(HEAD_FUNCTIONS)
