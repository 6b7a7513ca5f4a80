"""The training loop, and one file for each thing beside it: batches, gradients, validation, checkpoints, optimisers.

Knows learners by their protocol only, and runs; nothing of studies.
"""

from equimetric.training.loop import train

__all__ = ["train"]
