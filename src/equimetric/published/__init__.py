"""Published results as data: figures, tuned hyperparameters, baselines; and the progress that papers claim.

The tables of four papers, joined to ours by method, data set and metric. May import everything up to `objectives`.
Reading and filtering needs neither torch nor pandas; functions that return a DataFrame import pandas when called.
"""

from equimetric.published.baselines import ReportedBaseline, read_baselines, reported_baselines
from equimetric.published.improvement import (
    BASES,
    Accuracy,
    Improvement,
    average_by_year,
    compare_accuracies,
    compare_improvements,
    paper_accuracies,
    paper_improvements,
    publication_year,
    reality_check_rows,
    relative_improvement,
    table_accuracies,
    table_improvements,
)
from equimetric.published.joining import join_results
from equimetric.published.names import PAPERS
from equimetric.published.records import PublishedResult, ResultFilters, read_results, results, select_results
from equimetric.published.tuning import Hyperparameter, hyperparameters, select_hyperparameters

__all__ = [
    "BASES",
    "PAPERS",
    "Accuracy",
    "Hyperparameter",
    "Improvement",
    "PublishedResult",
    "ReportedBaseline",
    "ResultFilters",
    "average_by_year",
    "compare_accuracies",
    "compare_improvements",
    "hyperparameters",
    "join_results",
    "paper_accuracies",
    "paper_improvements",
    "publication_year",
    "read_baselines",
    "read_results",
    "reality_check_rows",
    "relative_improvement",
    "reported_baselines",
    "results",
    "select_hyperparameters",
    "select_results",
    "table_accuracies",
    "table_improvements",
]
