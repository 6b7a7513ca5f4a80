"""Verdicts and what limits them, one plain sentence each."""

from statistics import median
from typing import NamedTuple

from equimetric.studies.statistics.comparisons import RowComparison, RowComparisons
from equimetric.studies.statistics.power import minimum_detectable_difference
from equimetric.studies.statistics.seed_tests import smallest_p
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
    """The verdict with difference, interval and p; where it is undecided, with what would settle it."""
    interval, margin = comparison.simultaneous, unit.number(comparison.equivalence_margin)
    names = f"{comparison.first} and {comparison.second}"
    if comparison.verdict in ("better", "worse"):
        low, high = sorted((abs(interval.low), abs(interval.high)))
        text = f"{comparison.first} is {comparison.verdict} than {comparison.second} "
        text += (
            f"by {unit.amount(abs(interval.mean))} ({unit.number(low)} to {unit.number(high)}; {_p_text(comparison)})"
        )
        if not comparison.equivalence_margin:
            return f"{text}."
        where = "clearly above" if comparison.beyond_margin else "possibly below"
        return f"{text}, {where} the {unit.attribute(comparison.equivalence_margin)} threshold that matters."
    # The interval of a single seed would be too narrow to show.
    ends = "" if interval.seeds_unknown else f" ({unit.number(interval.low, '+')} to {unit.number(interval.high, '+')})"
    difference = f"{unit.amount(interval.mean, '+')}{ends}"
    if comparison.verdict == "undecided":
        needed = describe_seeds_needed(interval, comparison.equivalence_margin)
        return f"{names} cannot be told apart: {difference}. {needed}"
    text = f"{names} are practically equal: {difference} is within ± {margin}."
    certain = interval.low > 0 or interval.high < 0
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


def comparison_notes(table: RowComparisons, unit: Unit = POINTS) -> tuple[str, ...]:
    """Notes below a table: estimand, verdicts, the smallest p of the seeds, detectable differences."""
    intervals = [comparison.interval for comparison in table.comparisons if not comparison.interval.seeds_unknown]
    if not intervals:
        return ("No pair of rows can be told apart: one seed does not tell how much seeds matter; run two or more.",)
    count, confidence = len(intervals), f"{100 * intervals[0].confidence:g} %"
    bases = dict.fromkeys(comparison.interval.basis for comparison in table.comparisons)
    notes = [
        f"Intervals are for {intervals[0].estimand}: {'; '.join(bases)}.",
        f"{count} verdict{'s hold together' if count > 1 else ' holds'} with {confidence} confidence; differences "
        f"within ± {unit.amount(table.comparisons[0].equivalence_margin)} count as practically equal.",
    ]
    seeds = [n for interval in intervals for n in interval.seeds]
    if seeds:
        min_p, adjusted_min_p = smallest_p("sign flips", max(seeds)), smallest_p("sign flips", max(seeds), count)
        adjusted_text = f" ({adjusted_min_p:.2g} after Holm's adjustment for {count} comparisons)" if count > 1 else ""
        notes.append(
            f"With {max(seeds)} seeds, sign-flip and Wilcoxon tests cannot give a p below {min_p:.2g}{adjusted_text}; "
            "t-tests can."
        )
    return (*notes, _detectable_text(intervals, unit))


def _detectable_text(intervals: list[TwoWayInterval], unit: Unit) -> str:
    count = len(intervals)
    adjusted_confidence = 1 - (1 - intervals[0].confidence) / count
    single = unit.amount(median(map(minimum_detectable_difference, intervals)))
    text = f"Smallest difference detectable with 80 % power: {single} (median)"
    if count == 1:
        return f"{text}."
    adjusted = median(minimum_detectable_difference(interval.at(adjusted_confidence)) for interval in intervals)
    return f"{text}; {unit.number(adjusted)} as one of {count} comparisons."


def _p_text(comparison: RowComparison) -> str:
    p = comparison.adjusted_p
    value = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
    return f"{value} by Holm's method" if comparison.comparisons > 1 else value
