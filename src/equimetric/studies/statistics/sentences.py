"""Verdicts and what limits them, one plain sentence each."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from equimetric.studies.statistics.comparisons import RowComparison, RowComparisons
from equimetric.studies.statistics.power import minimum_detectable_difference
from equimetric.studies.statistics.two_way import THESE_CLASSES, TwoWayInterval
from equimetric.studies.statistics.verdicts import classes_needed, seeds_needed

__all__ = ["ONE_SEED", "POINTS", "Unit", "comparison_notes", "describe_seeds_needed", "verdict_sentence"]

ONE_SEED = "One seed does not tell how much seeds matter: run two or more."


class Unit(NamedTuple):
    """Format of differences: value × scale, with decimals and a name."""

    scale: float
    decimals: int
    name: str

    def number(self, value: float, sign: str = "") -> str:
        """A value without the name of the unit; `sign` "+" writes plus signs, too."""
        return f"{self.scale * value:{sign}.{self.decimals}f}".replace("-", "−")

    def amount(self, value: float, sign: str = "") -> str:
        """A value and the name of the unit."""
        return f"{self.number(value, sign)} {self.name}".rstrip()

    def attribute(self, value: float) -> str:
        """A value and the unit before a noun: the 0.50-point threshold."""
        return f"{self.number(value)}-{self.name.removesuffix('s')}".rstrip("-")


POINTS = Unit(100.0, 2, "points")
"""Percentage points of a metric between 0 and 1."""


def verdict_sentence(comparison: RowComparison, unit: Unit = POINTS) -> str:
    """The verdict with difference and interval; where it is undecided, with what would settle it."""
    interval, margin = comparison.interval, unit.number(comparison.equivalence_margin)
    low, high = comparison.low, comparison.high
    names = f"{comparison.first} and {comparison.second}"
    if comparison.verdict in ("better", "worse"):
        least, most = sorted((abs(low), abs(high)))
        text = f"{comparison.first} is {comparison.verdict} than {comparison.second} "
        text += f"by {unit.amount(abs(interval.mean))} ({unit.number(least)} to {unit.number(most)})"
        if not comparison.equivalence_margin:
            return f"{text}."
        where = "clearly above" if comparison.beyond_margin else "possibly below"
        return f"{text}, {where} the {unit.attribute(comparison.equivalence_margin)} threshold that matters."
    # The interval of a single seed would be too narrow to show.
    ends = "" if interval.seeds_unknown else f" ({unit.number(low, '+')} to {unit.number(high, '+')})"
    difference = f"{unit.amount(interval.mean, '+')}{ends}"
    if comparison.verdict == "undecided":
        needed = describe_seeds_needed(comparison.simultaneous, comparison.equivalence_margin)
        return f"{names} cannot be told apart: {difference}. {needed}"
    text = f"{names} are practically equal: {difference} is within ± {margin}."
    certain = low > 0 or high < 0
    return f"{text} The sign is certain, but so small a difference does not matter." if certain else text


def describe_seeds_needed(interval: TwoWayInterval, margin: float) -> str:
    """The seeds or classes that would settle an undecided difference if it stays the same size."""
    if interval.seeds_unknown:
        return ONE_SEED
    seeds, classes = seeds_needed(interval, margin), classes_needed(interval, margin)
    more_classes = f"{classes:,} classes ({interval.classes:,} now) would settle it." if classes else ""
    if seeds is not None:
        more_seeds = f"If the difference stays this size, {seeds} seeds ({min(interval.seeds)} now)"
        return f"{more_seeds} or {more_classes}" if more_classes else f"{more_seeds} would settle it."
    if interval.estimand == THESE_CLASSES:
        return "Even 1,000 seeds would not settle it."
    if not more_classes:
        both_needed = "More seeds alone do not help, nor do more classes alone: it takes both."
        return both_needed if interval.seeds else "Even 100,000 classes would not settle it."
    limit = "More seeds do not help, the classes limit it: " if interval.seeds else "There are no seeds: "
    return f"{limit}if the difference stays this size, {more_classes}"


def comparison_notes(table: RowComparisons, unit: Unit = POINTS, *, by: Sequence[str] = ()) -> tuple[str, ...]:
    """Notes below a table: estimand, verdicts, detectable differences; `by` names metrics that are judged together."""
    intervals = [comparison.interval for comparison in table.comparisons if not comparison.interval.seeds_unknown]
    if not intervals:
        return ("No pair of rows can be told apart: one seed does not tell how much seeds matter; run two or more.",)
    first = table.comparisons[0]
    count, confidence = first.comparisons, f"{100 * intervals[0].confidence:g} %"
    bases = dict.fromkeys(comparison.interval.basis for comparison in table.comparisons)
    metrics = f" by {' and '.join(by)}" if len(by) > 1 else ""
    together = (
        f"All statements hold together with {confidence} confidence: those on all {count:,} pairs of rows{metrics}"
        if count > 1
        else f"The statement holds with {confidence} confidence"
    )
    return (
        f"Intervals are for {intervals[0].estimand}: {'; '.join(bases)}.",
        f"{together}; differences within ± {unit.amount(first.equivalence_margin)} count as practically equal.",
        _detectable_text(intervals, count, unit),
    )


def _detectable_text(intervals: list[TwoWayInterval], count: int, unit: Unit) -> str:
    adjusted_confidence = 1 - (1 - intervals[0].confidence) / count
    single = unit.amount(median(map(minimum_detectable_difference, intervals)))
    text = f"Smallest difference detectable with 80 % power: {single} (median)"
    if count == 1:
        return f"{text}."
    adjusted = median(minimum_detectable_difference(interval.at(adjusted_confidence)) for interval in intervals)
    return f"{text}; {unit.number(adjusted)} as one of {count:,} comparisons."
