"""Learners, which form embeddings and define the losses. One file each, registered by `@learner`.

Knows backbones, batches, objectives; nothing of training, runs or evaluation.
"""

from equimetric.learners.batch import Batch, Task
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import LEARNERS, DelayedStart, HasDelayedStart, Learner, learner
from equimetric.learners.single import SingleObjectiveLearner

__all__ = [
    "LEARNERS",
    "Batch",
    "DelayedStart",
    "EpochView",
    "HasDelayedStart",
    "Learner",
    "SingleObjectiveLearner",
    "Task",
    "learner",
]
