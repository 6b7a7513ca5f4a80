"""Metric learning on feature vectors of any kind, in the form of scikit-learn's estimators.

May import objectives, batches, learners, evaluation and calibration; knows nothing of runs and training.
"""

from equimetric.estimators.metric_learner import MetricLearner

__all__ = ["MetricLearner"]
