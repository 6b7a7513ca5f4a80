"""The parameters of a trial, as a function of search, row, trial number and the trials before it alone.

A sampler that is resumed would propose its first trials again, and one that runs in parallel could not be repeated. So
every trial gets a fresh sampler, seeded by the row and the number of the trial, which is given all trials before it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.extras import import_extra
from equimetric.search_space import Choice, Integer, LogUniform, SearchSpace, Uniform
from equimetric.seeding import derive_seed
from equimetric.studies.search_config import SearchConfig

__all__ = ["ScoredTrial", "budget", "propose"]

Space = Mapping[str, SearchSpace]


@dataclass(frozen=True)
class ScoredTrial:
    """A finished trial: its parameters and the score that the search maximises."""

    params: Mapping[str, Any]
    score: float


def budget(space: Space, search: SearchConfig) -> int:
    """Number of trials of a row: `search.trials`, or the number of combinations where it is smaller."""
    if not space:
        return 0
    points = count_points(space, search)
    if search.kind == "grid" and points is not None and points > search.trials:
        raise EquimetricError(
            f"a grid of {points} points does not fit search.trials = {search.trials}; raise search.trials, lower "
            f"search.points (now {search.points}), or search fewer of {', '.join(space)}"
        )
    return search.trials if points is None else min(points, search.trials)


def count_points(space: Space, search: SearchConfig) -> int | None:
    """Number of combinations of a grid; None where a search over real numbers has infinitely many."""
    if search.kind != "grid" and any(isinstance(dimension, Uniform | LogUniform) for dimension in space.values()):
        return None
    return math.prod(len(grid_values(dimension, search.points)) for dimension in space.values())


def propose(space: Space, trials: Sequence[ScoredTrial], search: SearchConfig, row: str) -> dict[str, Any]:
    """The parameters of trial number len(trials) of a row.

    A grid, and a search over few enough combinations, takes them one after the other. A random search and the beginning
    of a Bayesian one take a quasi-random sequence (scrambled Sobol), which covers the space evenly.
    """
    trial, points = len(trials), count_points(space, search)
    if points is not None and points <= search.trials:
        return grid_point(space, search.points, trial)
    if search.kind == "random" or trial < search.startup:
        return quasi_random_point(space, trial, derive_seed(search.seed, "search", row))
    return ask_optuna(space, trials, search, derive_seed(search.seed, "search", row, trial))


def grid_point(space: Space, points: int, index: int) -> dict[str, Any]:
    """Combination number `index`, the last parameter running fastest."""
    combinations = product(*(grid_values(dimension, points) for dimension in space.values()))
    return dict(zip(space, next(values for i, values in enumerate(combinations) if i == index), strict=True))


def grid_values(space: SearchSpace, points: int) -> list[Any]:
    """The values of one parameter in a grid: evenly spaced, bounds included; all of a discrete one."""
    if isinstance(space, Choice):
        return list(space.values)
    if isinstance(space, Integer):
        return list(range(space.low, space.high + 1))
    return [from_unit(space, u) for u in np.linspace(0, 1, points).tolist()]


def quasi_random_point(space: Space, index: int, seed: int) -> dict[str, Any]:
    """Point number `index` of a scrambled Sobol sequence."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(len(space), seed=seed)
    with warnings.catch_warnings():
        # The balance of the first 2^m points is not needed.
        warnings.simplefilter("ignore", UserWarning)
        point: NDArray[np.float64] = sequence.random(index + 1)[index]
    return {name: from_unit(dimension, float(u)) for (name, dimension), u in zip(space.items(), point, strict=True)}


def from_unit(space: SearchSpace, u: float) -> Any:
    """The value at position u ∈ [0, 1] of a range."""
    if isinstance(space, Choice):
        return space.values[min(int(u * len(space.values)), len(space.values) - 1)]
    if isinstance(space, Integer):
        return min(space.low + int(u * (space.high - space.low + 1)), space.high)
    if isinstance(space, LogUniform):
        low, high = math.log(space.low), math.log(space.high)
        return min(max(math.exp(low + u * (high - low)), space.low), space.high)
    return space.low + u * (space.high - space.low)


def ask_optuna(space: Space, trials: Sequence[ScoredTrial], search: SearchConfig, seed: int) -> dict[str, Any]:
    """The proposal of a fresh sampler after the trials so far."""
    optuna = import_optuna()
    samplers = {
        # The first trials are quasi-random: the sampler uses its model from the first one that it proposes.
        "gp": lambda: optuna.samplers.GPSampler(seed=seed, n_startup_trials=0, deterministic_objective=False),
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, multivariate=True),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = build_optuna_study(space, trials, samplers[search.sampler]())
        trial = study.ask(distributions(space))
    return {name: trial.params[name] for name in space}


def build_optuna_study(space: Space, trials: Sequence[ScoredTrial], sampler: Any = None) -> Any:
    """An Optuna study in memory that holds the trials so far."""
    optuna = import_optuna()
    study = optuna.create_study(direction="maximize", sampler=sampler)
    ranges = distributions(space)
    for trial in trials:
        study.add_trial(optuna.trial.create_trial(params=dict(trial.params), distributions=ranges, value=trial.score))
    return study


def distributions(space: Space) -> dict[str, Any]:
    """The ranges as Optuna distributions."""
    optuna = import_optuna()
    result: dict[str, Any] = {}
    for name, dimension in space.items():
        if isinstance(dimension, Choice):
            result[name] = optuna.distributions.CategoricalDistribution(dimension.values)
        elif isinstance(dimension, Integer):
            result[name] = optuna.distributions.IntDistribution(dimension.low, dimension.high)
        else:
            result[name] = optuna.distributions.FloatDistribution(
                dimension.low, dimension.high, log=isinstance(dimension, LogUniform)
            )
    return result


def import_optuna() -> Any:
    """Optuna, or an error that says how to get it."""
    optuna = import_extra("optuna", "a Bayesian search", "optuna", "tuning", "choose search.kind = 'random' or 'grid'")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
