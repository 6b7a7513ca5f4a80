"""Tuning: which parameters a trial tries, as a function of the trials before it; what the best ones are.

Optuna proposes where a Bayesian search asks it to; which trials are finished or stale, the study's index knows.
"""

from equimetric.studies.search.edges import edge_notes
from equimetric.studies.search.proposals import ScoredTrial, budget, propose
from equimetric.studies.search.results import SearchChoice, best_trial

__all__ = ["ScoredTrial", "SearchChoice", "best_trial", "budget", "edge_notes", "propose"]
