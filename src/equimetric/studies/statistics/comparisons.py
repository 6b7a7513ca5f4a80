"""The rows of a table against one another: one family of statements, all of which hold together.

For m comparisons every interval has the confidence 1 − α/m (Bonferroni). So with 95 % confidence all of them contain
their differences at once, and whatever is read from them holds as well: verdicts of every pair, whichever row the
others are compared with, letters, ranks, ties with the best, and the ends of intervals themselves. What follows from
several is said, too: where a is better than b and b better than c, a is better than c. The joint ends are the
tightest that all intervals allow, low_ac = max(low_ac, low_ab + low_bc).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from equimetric.errors import EquimetricError, unknown_name
from equimetric.intervals import check_confidence
from equimetric.studies.statistics.class_scores import ClassScores
from equimetric.studies.statistics.effects import EffectSize, effect_size
from equimetric.studies.statistics.groups import compact_letters, possible_ranks
from equimetric.studies.statistics.pooling import pool_seeds
from equimetric.studies.statistics.power import minimum_detectable_difference
from equimetric.studies.statistics.two_way import (
    NEW_CLASSES,
    Estimand,
    TwoWayInterval,
    two_way_difference,
    two_way_interval,
)
from equimetric.studies.statistics.verdicts import EQUIVALENCE_MARGIN, Verdict, judge_ends, reverse_verdict

__all__ = ["RowComparison", "RowComparisons", "compare_rows", "count_comparisons"]


@dataclass(frozen=True)
class RowComparison:
    """The first row minus the second.

    interval      interval of this comparison alone
    low, high     joint ends, behind the verdict; infinite where one seed cannot tell
    verdict       on the first row
    comparisons   number of comparisons that hold together
    """

    first: str
    second: str
    interval: TwoWayInterval
    low: float
    high: float
    verdict: Verdict
    equivalence_margin: float
    comparisons: int
    effect: EffectSize

    @property
    def simultaneous(self) -> TwoWayInterval:
        """The interval of the confidence at which all comparisons hold together; the joint ends lie within it."""
        return self.interval.at(1 - (1 - self.interval.confidence) / self.comparisons)

    @property
    def beyond_margin(self) -> bool:
        """Whether the whole interval lies outside the region: the difference is certain, and it matters."""
        return self.low > self.equivalence_margin or self.high < -self.equivalence_margin

    @property
    def minimum_detectable(self) -> float:
        """The smallest difference that this comparison alone would detect with 80 % power."""
        return minimum_detectable_difference(self.interval)

    def reversed(self) -> "RowComparison":
        """The second row minus the first."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            interval=-self.interval,
            low=-self.high,
            high=-self.low,
            verdict=reverse_verdict(self.verdict),
            effect=replace(self.effect, difference=-self.effect.difference),
        )


@dataclass(frozen=True, eq=False)
class RowComparisons:
    """All comparisons of a table.

    rows         name → interval of its score, best first
    comparisons  every pair, the better score first
    """

    rows: Mapping[str, TwoWayInterval]
    comparisons: tuple[RowComparison, ...]

    def between(self, first: str, second: str) -> RowComparison:
        """The comparison of two rows, whichever was first."""
        for name in (first, second):
            if name not in self.rows:
                raise unknown_name("row", name, self.rows)
        if first == second:
            raise EquimetricError(f"{first!r} is not compared with itself; name two rows")
        comparison = self._by_pair.get((first, second))
        return self._by_pair[second, first].reversed() if comparison is None else comparison

    def among(self, names: Collection[str]) -> "RowComparisons":
        """The same statements about some of the rows alone, such as the trained ones."""
        rows = {name: interval for name, interval in self.rows.items() if name in names}
        kept = (one for one in self.comparisons if one.first in rows and one.second in rows)
        return RowComparisons(rows, tuple(kept))

    @property
    def best(self) -> str:
        """The row with the best score."""
        return next(iter(self.rows))

    @property
    def tied_with_best(self) -> tuple[str, ...]:
        """The best row and those of which it is not better: practically equal, or undecided."""
        return tuple(name for name in self.rows if (self.best, name) not in self._better)

    @cached_property
    def letters(self) -> dict[str, str]:
        """Rows that share a letter cannot be told apart: neither is better."""
        return compact_letters(tuple(self.rows), self._better)

    @cached_property
    def rank_intervals(self) -> dict[str, tuple[int, int]]:
        """Best and worst rank that the verdicts leave to every row; only differences that matter count."""
        return possible_ranks(tuple(self.rows), self._better)

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], RowComparison]:
        return {(pair.first, pair.second): pair for pair in self.comparisons}

    @cached_property
    def _better(self) -> set[tuple[str, str]]:
        """Pairs (better row, worse row)."""
        oriented = (pair.reversed() if pair.verdict == "worse" else pair for pair in self.comparisons)
        return {(pair.first, pair.second) for pair in oriented if pair.verdict == "better"}


def compare_rows(
    rows: Mapping[str, ClassScores],
    *,
    equivalence_margin: float = EQUIVALENCE_MARGIN,
    estimand: Estimand = NEW_CLASSES,
    confidence: float = 0.95,
    higher_is_better: bool = True,
    alike: Collection[str] | None = None,
    comparisons: int | None = None,
) -> RowComparisons:
    """Compare all pairs of rows on the same test classes.

    `alike` are the rows whose spread over seeds is estimated together (`pooling`), by default all that have seeds.
    `comparisons` hold together: by default those of this table, more where others belong to the same family, such as
    those by another metric.
    """
    if len(rows) < 2:
        raise EquimetricError("a comparison needs at least two rows")
    check_confidence(confidence)
    order = sorted(rows, key=lambda name: -rows[name].mean if higher_is_better else rows[name].mean)
    pooled = pool_seeds(rows, rows if alike is None else alike)
    count = max(1, count_comparisons(rows) if comparisons is None else comparisons)
    pairs = list(combinations(order, 2))
    intervals = [
        two_way_difference(
            rows[a], rows[b], estimand=estimand, confidence=confidence, pooled=(pooled.get(a), pooled.get(b))
        )
        for a, b in pairs
    ]
    ends = _joint_ends(len(order), [interval.at(1 - (1 - confidence) / count) for interval in intervals])
    found = tuple(
        RowComparison(
            first=a,
            second=b,
            interval=interval,
            low=low,
            high=high,
            verdict=judge_ends(low, high, equivalence_margin, higher_is_better=higher_is_better),
            equivalence_margin=equivalence_margin,
            comparisons=count,
            effect=effect_size(rows[a], rows[b]),
        )
        for (a, b), interval, (low, high) in zip(pairs, intervals, ends, strict=True)
    )
    scores = {name: two_way_interval(rows[name], estimand=estimand, confidence=confidence) for name in order}
    return RowComparisons(scores, found)


def count_comparisons(rows: Mapping[str, ClassScores]) -> int:
    """The pairs of rows that can be told apart at all: a row with a single seed cannot."""
    known = sum(row.seeds is None or len(row.seeds) > 1 for row in rows.values())
    return known * (known - 1) // 2


def _joint_ends(rows: int, intervals: list[TwoWayInterval]) -> list[tuple[float, float]]:
    """Lower and upper ends of all pairs, in the order of `combinations`, tightened by one another."""
    pairs = list(combinations(range(rows), 2))
    lows = np.full((rows, rows), -math.inf)
    np.fill_diagonal(lows, 0.0)
    for (i, j), interval in zip(pairs, intervals, strict=True):
        if not interval.seeds_unknown:
            lows[i, j], lows[j, i] = interval.low, -interval.high
    for middle in range(rows):
        lows = np.maximum(lows, lows[:, middle, None] + lows[None, middle, :])
    # Rounding does not put an end beyond the difference.
    return [
        (min(float(lows[i, j]), interval.mean), max(-float(lows[j, i]), interval.mean))
        for (i, j), interval in zip(pairs, intervals, strict=True)
    ]
