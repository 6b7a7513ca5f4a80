"""Better, worse, practically equal or undecided: what the interval of a difference allows to say.

The verdicts exclude one another. The region of practical equivalence comes first: an interval inside ± region is
*practically equal* even where it excludes 0, because a difference that small does not matter. Otherwise an interval
above 0 is *better*, one below 0 *worse*, and all others are *undecided*. So is every comparison of a row with a single
seed, whose spread over seeds is unknown.
"""

import math
from typing import Literal, TypeAlias

from equimetric.errors import EquimetricError
from equimetric.studies.statistics.power import project_interval, smallest_sufficient
from equimetric.studies.statistics.two_way import THESE_CLASSES, TwoWayInterval

__all__ = ["EQUIVALENCE_MARGIN", "Verdict", "classes_needed", "decide", "judge_ends", "reverse_verdict", "seeds_needed"]

Verdict: TypeAlias = Literal["better", "worse", "practically equal", "undecided"]

EQUIVALENCE_MARGIN = 0.005
"""Half width of the region of practical equivalence: half a point of a metric between 0 and 1."""

MAX_SEEDS = 1000
MAX_CLASSES = 100_000


def decide(
    interval: TwoWayInterval, equivalence_margin: float = EQUIVALENCE_MARGIN, *, higher_is_better: bool = True
) -> Verdict:
    """The verdict on the first row from the interval of first − second; the margin is in the unit of the scores."""
    known = not interval.seeds_unknown
    low, high = (interval.low, interval.high) if known else (-math.inf, math.inf)
    return judge_ends(low, high, equivalence_margin, higher_is_better=higher_is_better)


def judge_ends(low: float, high: float, equivalence_margin: float, *, higher_is_better: bool = True) -> Verdict:
    """The verdict from both ends of an interval."""
    if not equivalence_margin >= 0:
        raise EquimetricError(
            f"the region of practical equivalence is {equivalence_margin}; give a half width of 0 or more"
        )
    if -equivalence_margin <= low and high <= equivalence_margin:
        return "practically equal"
    if low > 0:
        return "better" if higher_is_better else "worse"
    if high < 0:
        return "worse" if higher_is_better else "better"
    return "undecided"


def reverse_verdict(verdict: Verdict) -> Verdict:
    """The verdict on the second row."""
    if verdict == "better":
        return "worse"
    return "better" if verdict == "worse" else verdict


def seeds_needed(interval: TwoWayInterval, equivalence_margin: float = EQUIVALENCE_MARGIN) -> int | None:
    """Seeds with which an undecided difference would be decided if it stays as it is; None if 1,000 are too few.

    None means that the classes limit the comparison: more seeds do not help.
    """
    if not interval.seeds:
        return None

    def is_enough(seeds: int) -> bool:
        return decide(project_interval(interval, seeds=seeds), equivalence_margin) != "undecided"

    return smallest_sufficient(is_enough, min(interval.seeds), MAX_SEEDS)


def classes_needed(interval: TwoWayInterval, equivalence_margin: float = EQUIVALENCE_MARGIN) -> int | None:
    """Test classes with which it would be decided with the same seeds; None if 100,000 are too few.

    None as well where the estimand is these classes.
    """
    if interval.estimand == THESE_CLASSES:
        return None

    def is_enough(classes: int) -> bool:
        return decide(project_interval(interval, classes=classes), equivalence_margin) != "undecided"

    return smallest_sufficient(is_enough, interval.classes, MAX_CLASSES)
