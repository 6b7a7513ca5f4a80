"""Rows of a table against one another, or all against one: intervals and verdicts that hold together.

For m comparisons, verdicts come from intervals that are wider than those of a single comparison
(`simultaneous_confidences`): with 95 % confidence no *better* or *worse* of the table is wrong, and likewise no
*practically equal*.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from equimetric.errors import EquimetricError, unknown_name
from equimetric.intervals import check_confidence
from equimetric.studies.statistics.class_scores import ClassScores
from equimetric.studies.statistics.effects import EffectSize, effect_size
from equimetric.studies.statistics.groups import compact_letters, possible_ranks
from equimetric.studies.statistics.multiplicity import holm, simultaneous_confidences
from equimetric.studies.statistics.power import minimum_detectable_difference
from equimetric.studies.statistics.two_way import (
    NEW_CLASSES,
    Estimand,
    TwoWayInterval,
    two_way_difference,
    two_way_interval,
)
from equimetric.studies.statistics.verdicts import EQUIVALENCE_MARGIN, Verdict, decide, reverse_verdict

__all__ = ["RowComparison", "RowComparisons", "compare_rows"]


@dataclass(frozen=True)
class RowComparison:
    """The first row minus the second.

    interval      interval of this comparison alone
    simultaneous  the wider interval behind the verdict
    adjusted_p    p by Holm's method over all comparisons of the table; NaN where one seed cannot tell
    verdict       on the first row
    comparisons   number of comparisons that the adjustment is for
    """

    first: str
    second: str
    interval: TwoWayInterval
    simultaneous: TwoWayInterval
    adjusted_p: float
    verdict: Verdict
    equivalence_margin: float
    comparisons: int
    effect: EffectSize

    @property
    def beyond_margin(self) -> bool:
        """Whether the whole interval lies outside the region: the difference is certain, and it matters."""
        return self.simultaneous.low > self.equivalence_margin or self.simultaneous.high < -self.equivalence_margin

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
            simultaneous=-self.simultaneous,
            verdict=reverse_verdict(self.verdict),
            effect=replace(self.effect, difference=-self.effect.difference),
        )


@dataclass(frozen=True, eq=False)
class RowComparisons:
    """All comparisons of a table.

    rows         name → interval of its score, best first
    comparisons  every pair, the better score first; or every other row minus `baseline`
    """

    rows: Mapping[str, TwoWayInterval]
    comparisons: tuple[RowComparison, ...]
    baseline: str | None

    def between(self, first: str, second: str) -> RowComparison:
        """The comparison of two rows, whichever was first."""
        for name in (first, second):
            if name not in self.rows:
                raise unknown_name("row", name, self.rows)
        comparison = self._by_pair.get((first, second)) or self._by_pair.get((second, first))
        if comparison is None:
            raise EquimetricError(f"{first!r} and {second!r} were not compared; compare all pairs with baseline=None")
        return comparison if comparison.first == first else comparison.reversed()

    @property
    def best(self) -> str:
        """The row with the best score."""
        return next(iter(self.rows))

    @property
    def tied_with_best(self) -> tuple[str, ...]:
        """The best row and those of which it is not better: practically equal, or undecided."""
        self._require_all_pairs("ties with the best row")
        return tuple(name for name in self.rows if (self.best, name) not in self._better)

    @cached_property
    def letters(self) -> dict[str, str]:
        """Rows that share a letter cannot be told apart: neither is better."""
        self._require_all_pairs("letters")
        return compact_letters(tuple(self.rows), self._better)

    @cached_property
    def rank_intervals(self) -> dict[str, tuple[int, int]]:
        """Best and worst rank that the verdicts leave to every row; only differences that matter count."""
        self._require_all_pairs("ranks")
        return possible_ranks(tuple(self.rows), self._better)

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], RowComparison]:
        return {(pair.first, pair.second): pair for pair in self.comparisons}

    @cached_property
    def _better(self) -> list[tuple[str, str]]:
        """Pairs (better row, worse row)."""
        oriented = (pair.reversed() if pair.verdict == "worse" else pair for pair in self.comparisons)
        return [(pair.first, pair.second) for pair in oriented if pair.verdict == "better"]

    def _require_all_pairs(self, purpose: str) -> None:
        if self.baseline is not None:
            raise EquimetricError(f"{purpose} need all pairs of rows; compare with baseline=None")


def compare_rows(
    rows: Mapping[str, ClassScores],
    *,
    baseline: str | None = None,
    equivalence_margin: float = EQUIVALENCE_MARGIN,
    estimand: Estimand = NEW_CLASSES,
    confidence: float = 0.95,
    higher_is_better: bool = True,
) -> RowComparisons:
    """Compare all pairs of rows, or all rows with `baseline`, on the same test classes."""
    if len(rows) < 2:
        raise EquimetricError("a comparison needs at least two rows")
    if baseline is not None and baseline not in rows:
        raise unknown_name("row", baseline, rows)
    check_confidence(confidence)
    order = sorted(rows, key=lambda name: -rows[name].mean if higher_is_better else rows[name].mean)
    pairs = list(combinations(order, 2))
    if baseline is not None:
        pairs = [(name, baseline) for name in order if name != baseline]
    intervals = [two_way_difference(rows[a], rows[b], estimand=estimand, confidence=confidence) for a, b in pairs]
    adjusted, simultaneous = _adjust(intervals, confidence)
    comparisons = tuple(
        RowComparison(
            first=a,
            second=b,
            interval=interval,
            simultaneous=wide,
            adjusted_p=p,
            verdict=decide(wide, equivalence_margin, higher_is_better=higher_is_better),
            equivalence_margin=equivalence_margin,
            comparisons=sum(not interval.seeds_unknown for interval in intervals),
            effect=effect_size(rows[a], rows[b]),
        )
        for (a, b), interval, wide, p in zip(pairs, intervals, simultaneous, adjusted, strict=True)
    )
    scores = {name: two_way_interval(rows[name], estimand=estimand, confidence=confidence) for name in order}
    return RowComparisons(scores, comparisons, baseline)


def _adjust(intervals: list[TwoWayInterval], confidence: float) -> tuple[list[float], list[TwoWayInterval]]:
    """Holm-adjusted p-values and simultaneous intervals.

    Comparisons without a defined p-value (a single seed) are excluded from the adjustment.
    """
    p_values = [interval.p_value for interval in intervals]
    tested = [p for p in p_values if not math.isnan(p)]
    adjusted = iter(zip(holm(tested), simultaneous_confidences(tested, confidence), strict=True) if tested else ())
    untested = (math.nan, confidence)
    levels = [untested if math.isnan(p) else next(adjusted) for p in p_values]
    wide = [interval.at(level) for interval, (_, level) in zip(intervals, levels, strict=True)]
    return [p for p, _ in levels], wide
