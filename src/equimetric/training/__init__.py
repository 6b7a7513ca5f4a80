"""The training loop, with batches, gradients, validation, checkpoints and optimisers in one file each.

Knows learners by their protocol only, and runs; nothing of studies.
"""

from equimetric.training.loop import train
from equimetric.training.refit import refit
from equimetric.training.trials import TrialResult, train_trial

__all__ = ["TrialResult", "refit", "train", "train_trial"]
