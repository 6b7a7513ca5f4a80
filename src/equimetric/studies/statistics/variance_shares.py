"""Variance components of scores: seeds, folds, classes, tuning trials, and their interactions.

For a balanced crossed design with factors F, the variance component of a set U of factors follows from expected mean
squares: E[MS_T] = Σ_{U ⊇ T} σ_U² Π_{f ∉ U} n_f. The largest set, the interaction of all factors, contains the noise of
single scores.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from equimetric.errors import EquimetricError, quote
from equimetric.studies.statistics.class_scores import Floats

__all__ = ["VarianceComponent", "balanced_scores", "variance_components"]


@dataclass(frozen=True)
class VarianceComponent:
    """Variance σ² that a factor, or an interaction such as seed × class, adds to a single score.

    share    share of the sum of all components
    degrees  degrees of freedom of its mean square
    clipped  the estimate was negative, which noise alone can do, and was set to 0
    """

    factors: tuple[str, ...]
    variance: float
    share: float
    degrees: int
    clipped: bool

    @property
    def name(self) -> str:
        """'seed × class'."""
        return " × ".join(self.factors)


def variance_components(
    values: ArrayLike, factors: Sequence[str], *, fixed: Sequence[str] = ()
) -> tuple[VarianceComponent, ...]:
    """Components of an array with one axis per factor, main effects first.

    Levels of a factor are draws from many (seeds, folds, classes, trials of a search), and factors are crossed: every
    seed has every fold, on the same classes. Every cell holds one score. A `fixed` factor, such as the method, is no
    draw: mean squares are averaged over its levels. Negative estimates are set to 0. Classes count alike.
    """
    array, random = _check_design(values, factors, fixed)
    sizes = dict(zip(random, array.shape[1:], strict=True))
    sets = [chosen for size in range(1, len(random) + 1) for chosen in combinations(random, size)]
    degrees = {chosen: prod(sizes[factor] - 1 for factor in chosen) for chosen in sets}
    squares = {chosen: _mean_square(array, random, chosen) for chosen in sets}
    raw: dict[tuple[str, ...], float] = {}
    for chosen in reversed(sets):
        above = sum(raw[larger] * _copies(larger, sizes) for larger in raw if set(chosen) < set(larger))
        raw[chosen] = (squares[chosen] - above) / _copies(chosen, sizes)
    total = sum(max(variance, 0.0) for variance in raw.values())
    return tuple(
        VarianceComponent(
            factors=chosen,
            variance=max(raw[chosen], 0.0),
            share=max(raw[chosen], 0.0) / total if total else 0.0,
            degrees=degrees[chosen] * len(array),
            clipped=raw[chosen] < 0,
        )
        for chosen in sets
    )


def balanced_scores(
    records: Iterable[Mapping[str, Hashable]], factors: Sequence[str], value: str = "value"
) -> tuple[Floats, dict[str, tuple[Hashable, ...]]]:
    """The array for `variance_components` from one record per score, and the levels of every factor.

    Every combination of levels must occur once; the error names one that is missing or occurs twice.
    """
    cells: dict[tuple[Hashable, ...], Hashable] = {}
    for record in records:
        missing = [name for name in (*factors, value) if name not in record]
        if missing:
            raise EquimetricError(f"a record has no {missing[0]!r}, only {', '.join(map(repr, record))}")
        cell = tuple(record[factor] for factor in factors)
        if cell in cells:
            raise EquimetricError(
                f"two scores have {_cell_text(factors, cell)}; average them or name what they differ in"
            )
        cells[cell] = record[value]
    levels = {factor: tuple(dict.fromkeys(cell[axis] for cell in cells)) for axis, factor in enumerate(factors)}
    grid = list(product(*levels.values()))
    absent = [cell for cell in grid if cell not in cells]
    if absent:
        raise EquimetricError(
            f"{len(absent)} of {len(grid)} scores are missing, the first is {_cell_text(factors, absent[0])}; variance "
            "components need all combinations: leave out the levels with missing runs, or run them"
        )
    array = np.array([cells[cell] for cell in grid], dtype=np.float64)
    return array.reshape([len(values) for values in levels.values()]), levels


def _check_design(values: ArrayLike, factors: Sequence[str], fixed: Sequence[str]) -> tuple[Floats, tuple[str, ...]]:
    """Values with all fixed factors as one first axis, and the names of the others."""
    array = np.asarray(values, dtype=np.float64)
    random = tuple(factor for factor in factors if factor not in fixed)
    if array.ndim != len(factors) or len(set(factors)) < len(factors) or not set(fixed) <= set(factors) or not random:
        raise EquimetricError(
            f"scores of shape {array.shape} need one name per axis and one that is not fixed, "
            f"got {quote(list(factors))} with {quote(list(fixed))} fixed"
        )
    if not np.isfinite(array).all():
        raise EquimetricError("scores contain NaN or infinite numbers; leave out the levels of failed runs")
    small = [factor for factor, size in zip(factors, array.shape, strict=True) if factor in random and size < 2]
    if small:
        raise EquimetricError(f"{small[0]!r} has one level, which has no variance; leave this factor out")
    order = [*(factors.index(factor) for factor in fixed), *(factors.index(factor) for factor in random)]
    moved = array.transpose(order)
    return moved.reshape(-1, *moved.shape[len(fixed) :]), random


def _mean_square(array: Floats, factors: tuple[str, ...], chosen: tuple[str, ...]) -> float:
    """Mean square of an effect: contrasts over its factors, means over the others."""
    effect = array
    for axis, factor in enumerate(factors, start=1):
        mean = effect.mean(axis=axis, keepdims=True)
        effect = effect - mean if factor in chosen else mean
    sizes: dict[str, int] = dict(zip(factors, array.shape[1:], strict=True))
    degrees = len(array) * prod(sizes[factor] - 1 for factor in chosen)
    squares = float(np.square(effect).sum()) * _copies(chosen, sizes)
    return squares / degrees


def _copies(chosen: tuple[str, ...], sizes: Mapping[str, int]) -> int:
    """Scores that share one combination of levels of some factors."""
    return prod(size for factor, size in sizes.items() if factor not in chosen)


def _cell_text(factors: Sequence[str], cell: tuple[Hashable, ...]) -> str:
    return ", ".join(f"{factor} {level!r}" for factor, level in zip(factors, cell, strict=True))
