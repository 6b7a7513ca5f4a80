"""Detectable differences of a comparison, and the number of seeds or classes that a verdict needs."""

import math
from collections.abc import Callable
from dataclasses import replace

from equimetric.errors import EquimetricError
from equimetric.studies.statistics.two_way import THESE_CLASSES, SeedTerms, TwoWayInterval, combine_terms

__all__ = ["minimum_detectable_difference", "project_interval", "smallest_sufficient"]


def minimum_detectable_difference(interval: TwoWayInterval, power: float = 0.8) -> float:
    """The true difference whose interval excludes 0 in a share `power` of all repetitions.

    δ √V, with δ the non-centrality at which a t of ν degrees of freedom exceeds h/√V with probability `power`. NaN
    where one seed leaves V unknown.
    """
    from scipy.special import nctdtrinc

    if not 0 < power < 1:
        raise EquimetricError(f"power is {power}; it must lie between 0 and 1, such as 0.8")
    if interval.seeds_unknown:
        return math.nan
    if interval.variance == 0:
        return 0.0
    quantile = interval.half_width / interval.error
    return float(nctdtrinc(interval.degrees_of_freedom, 1 - power, quantile)) * interval.error


def project_interval(
    interval: TwoWayInterval, *, seeds: int | None = None, classes: int | None = None
) -> TwoWayInterval:
    """The interval to expect with other numbers of seeds (of each row) and classes, if mean and variances stay.

    v_s = (σ_s² + σ_e²/C)/n, v_c = (σ_c² + σ_e²/n)/C, v_e = σ_e²/(nC); V and h follow as ever.
    """
    if interval.seeds_unknown:
        raise EquimetricError("one seed does not tell its spread over seeds; run at least two")
    n = tuple(interval.seeds if seeds is None else (seeds for _ in interval.seeds))
    c = interval.classes if classes is None else classes
    seed, class_, residual = interval.parts
    # Two rows with different seeds share the variances of their difference equally.
    groups = [SeedTerms((seed + residual / c) / k / len(n), residual / (k * c) / len(n), k, interval.pool) for k in n]
    class_term = class_ / c + sum(group.residual for group in groups)
    terms = combine_terms(groups, 0.0 if interval.estimand == THESE_CLASSES else class_term, c)
    return replace(interval, terms=terms, seeds=n, classes=c)


def smallest_sufficient(is_enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest n in (low, high] with `is_enough(n)`, by bisection; None if even `high` is not enough."""
    if not is_enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
