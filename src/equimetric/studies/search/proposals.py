"""Which parameters a trial tries: a function of search, row, trial number and the trials before it alone.

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
    """How many trials a row gets: those of the search, or as many as there are combinations, where these are fewer."""
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
    """How many combinations a grid has; None for the infinitely many of a search over real numbers."""
    if search.kind != "grid" and any(isinstance(one, Uniform | LogUniform) for one in space.values()):
        return None
    return math.prod(len(grid_values(one, search.points)) for one in space.values())


def propose(space: Space, trials: Sequence[ScoredTrial], search: SearchConfig, row: str) -> dict[str, Any]:
    """The parameters of trial number len(trials) of a row.

    A grid, and a search over few enough combinations, takes them one after the other. A random search and the beginning
    of a Bayesian one take a quasi-random sequence (scrambled Sobol), which covers the space evenly.
    """
    number, points = len(trials), count_points(space, search)
    if points is not None and points <= search.trials:
        return grid_point(space, search.points, number)
    if search.kind == "random" or number < search.startup:
        return quasi_random_point(space, number, derive_seed(search.seed, "search", row))
    return ask_optuna(space, trials, search, derive_seed(search.seed, "search", row, number))


def grid_point(space: Space, points: int, number: int) -> dict[str, Any]:
    """Combination number `number`, the last parameter running fastest."""
    combinations = product(*(grid_values(one, points) for one in space.values()))
    return dict(zip(space, next(values for place, values in enumerate(combinations) if place == number), strict=True))


def grid_values(space: SearchSpace, points: int) -> list[Any]:
    """The values of one parameter in a grid: evenly spaced, bounds included; all of a discrete one."""
    if isinstance(space, Choice):
        return list(space.values)
    if isinstance(space, Integer):
        return list(range(space.low, space.high + 1))
    return [from_unit(space, share) for share in np.linspace(0, 1, points).tolist()]


def quasi_random_point(space: Space, number: int, seed: int) -> dict[str, Any]:
    """Point number `number` of a scrambled Sobol sequence."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(len(space), seed=seed)
    with warnings.catch_warnings():
        # The balance of the first 2^m points is not needed.
        warnings.simplefilter("ignore", UserWarning)
        point: NDArray[np.float64] = sequence.random(number + 1)[number]
    return {name: from_unit(one, float(share)) for (name, one), share in zip(space.items(), point, strict=True)}


def from_unit(space: SearchSpace, share: float) -> Any:
    """The value at a share in [0, 1] of a range."""
    if isinstance(space, Choice):
        return space.values[min(int(share * len(space.values)), len(space.values) - 1)]
    if isinstance(space, Integer):
        return min(space.low + int(share * (space.high - space.low + 1)), space.high)
    if isinstance(space, LogUniform):
        low, high = math.log(space.low), math.log(space.high)
        return min(max(math.exp(low + share * (high - low)), space.low), space.high)
    return space.low + share * (space.high - space.low)


def ask_optuna(space: Space, trials: Sequence[ScoredTrial], search: SearchConfig, seed: int) -> dict[str, Any]:
    """What a fresh sampler proposes after the trials so far."""
    optuna = import_optuna()
    samplers = {
        # Trials at the beginning are ours: the sampler models from the first one that it is asked for.
        "gp": lambda: optuna.samplers.GPSampler(seed=seed, n_startup_trials=0, deterministic_objective=False),
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, multivariate=True),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = recorded_study(space, trials, samplers[search.sampler]())
        trial = study.ask(distributions(space))
    return {name: trial.params[name] for name in space}


def recorded_study(space: Space, trials: Sequence[ScoredTrial], sampler: Any = None) -> Any:
    """An Optuna study in memory that holds the trials so far."""
    optuna = import_optuna()
    study = optuna.create_study(direction="maximize", sampler=sampler)
    known = distributions(space)
    for one in trials:
        study.add_trial(optuna.trial.create_trial(params=dict(one.params), distributions=known, value=one.score))
    return study


def distributions(space: Space) -> dict[str, Any]:
    """The ranges as Optuna has them."""
    optuna = import_optuna()
    made: dict[str, Any] = {}
    for name, one in space.items():
        if isinstance(one, Choice):
            made[name] = optuna.distributions.CategoricalDistribution(one.values)
        elif isinstance(one, Integer):
            made[name] = optuna.distributions.IntDistribution(one.low, one.high)
        else:
            made[name] = optuna.distributions.FloatDistribution(one.low, one.high, log=isinstance(one, LogUniform))
    return made


def import_optuna() -> Any:
    """Optuna, or an error that says how to get it."""
    optuna = import_extra("optuna", "a Bayesian search", "optuna", "tuning", "choose search.kind = 'random' or 'grid'")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
