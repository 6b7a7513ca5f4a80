"""Learners form embeddings and say what is minimised; the members of an ensemble are formed here, too."""

from equimetric.learners.learner import Batch, Learner
from equimetric.learners.single import SingleLearner

__all__ = ["Batch", "Learner", "SingleLearner"]
