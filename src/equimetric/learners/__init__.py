"""Learners form embeddings and say what is minimised; ensembles and multi-task methods are learners, not losses."""

from equimetric.learners.learner import Batch, Learner
from equimetric.learners.single import SingleLearner

__all__ = ["Batch", "Learner", "SingleLearner"]
