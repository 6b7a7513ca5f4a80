"""Results of a search: the best trial, and how much each parameter mattered."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equimetric.search_space import SearchSpace
from equimetric.studies.search.proposals import ScoredTrial, build_optuna_study, import_optuna

__all__ = ["SearchChoice", "best_trial", "parameter_importance"]

MIN_TRIALS_FOR_IMPORTANCE = 8
"""Trials below which shares of variance are chance."""


@dataclass(frozen=True)
class SearchChoice:
    """The parameters that a search chose for a row.

    Attributes:
        params: by option or condition.
        trial: number of the trial.
        score: mean over the folds of its best validation score.
        trials: number of trials.
        at_edge: parameters that lie at the end of their range, with the sentence that says so.
    """

    params: Mapping[str, Any]
    trial: int
    score: float
    trials: int
    at_edge: Mapping[str, str]


def best_trial(trials: Sequence[ScoredTrial]) -> int:
    """The number of the trial with the largest score, the first of equal ones."""
    return max(range(len(trials)), key=lambda index: (trials[index].score, -index))


def parameter_importance(space: Mapping[str, SearchSpace], trials: Sequence[ScoredTrial]) -> dict[str, float]:
    """Share of the variance of scores that each parameter explains (fANOVA); empty for few trials or equal scores."""
    enough = len(trials) >= MIN_TRIALS_FOR_IMPORTANCE and len({trial.score for trial in trials}) > 1
    if not space or not enough:
        return {}
    if len(space) == 1:
        return dict.fromkeys(space, 1.0)
    optuna = import_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        shares = optuna.importance.get_param_importances(build_optuna_study(space, trials), evaluator=evaluator)
    return {name: float(shares[name]) for name in space if name in shares}
