"""Learners: how embeddings are formed and what is minimised. One file each, registered by `@learner`.

Knows backbones, batches, objectives; nothing of training, runs or evaluation.
"""

from equimetric.learners.batch import Batch, Task
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import LEARNERS, LatePart, LateStart, Learner, learner
from equimetric.learners.single import SingleLearner

__all__ = ["LEARNERS", "Batch", "EpochView", "LatePart", "LateStart", "Learner", "SingleLearner", "Task", "learner"]
