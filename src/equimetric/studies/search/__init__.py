"""Tuning: the parameters of a trial, as a function of the trials before it, and the best ones.

A Bayesian search asks Optuna for proposals; the study's index knows which trials are finished or stale.
"""

from equimetric.studies.search.edges import edge_notes
from equimetric.studies.search.proposals import ScoredTrial, budget, propose
from equimetric.studies.search.results import SearchChoice, best_trial

__all__ = ["ScoredTrial", "SearchChoice", "best_trial", "budget", "edge_notes", "propose"]
