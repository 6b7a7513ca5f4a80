"""Verdicts from intervals, and what would settle it where they are undecided."""

import math

import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.studies.statistics import (
    NEW_CLASSES,
    THESE_CLASSES,
    ClassScores,
    TwoWayInterval,
    classes_needed,
    decide,
    describe_seeds_needed,
    project_interval,
    seeds_needed,
    two_way_difference,
)
from equimetric.studies.statistics.two_way import VarianceParts, VarianceTerms


def interval(low, high, seeds=(10,)):
    """The interval from low to high, in points; normal quantiles."""
    half = (high - low) / 200
    error = half / 1.959963984540054
    parts = VarianceParts(10 * error**2, 0, 0)
    terms = VarianceTerms(error**2, 1e12, 0, 39, 0)
    return TwoWayInterval((low + high) / 200, terms, NEW_CLASSES, "same seeds", seeds, 40, parts)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.1, 2.0, "better"),
        (0.6, 2.0, "better"),
        (-2.0, -0.1, "worse"),
        (-0.4, 0.4, "practically equal"),
        # Surely above 0, but so little does not matter: the region comes first.
        (0.1, 0.4, "practically equal"),
        (-0.4, -0.1, "practically equal"),
        (-0.4, 0.6, "undecided"),
        (-3.0, 3.0, "undecided"),
    ],
)
def test_verdicts_exclude_one_another(low, high, verdict):
    assert decide(interval(low, high)) == verdict
    mirrored = {"better": "worse", "worse": "better"}.get(verdict, verdict)
    assert decide(interval(-high, -low)) == mirrored
    assert decide(interval(low, high), higher_is_better=False) == mirrored


def test_the_region_is_an_argument():
    assert decide(interval(0.6, 2.0), equivalence_margin=0.03) == "practically equal"
    assert decide(interval(0.1, 0.4), equivalence_margin=0) == "better"
    assert decide(interval(-0.1, 0.4), equivalence_margin=0) == "undecided"
    with pytest.raises(EquimetricError, match="give a half width of 0 or more"):
        decide(interval(0, 1), equivalence_margin=-0.1)


def test_one_seed_decides_nothing():
    assert decide(interval(5.0, 6.0, seeds=(10, 1))) == "undecided"
    told = describe_seeds_needed(interval(5.0, 6.0, seeds=(1,)), 0.005)
    assert told == "One seed does not tell how much seeds matter: run two or more."


def rows(seed, class_, cell, gain=0.01, n=6, c=30):
    """Two rows with exactly these standard deviations of the difference, in points; seeds are symmetric around 0."""
    rng = np.random.default_rng(3)
    by_seed = np.linspace(-1, 1, n)[:, None]
    by_class = rng.normal(size=c)
    cells = rng.normal(size=(n, c))
    cells = cells - cells.mean(axis=0) - cells.mean(axis=1, keepdims=True) + cells.mean()
    parts = (part / np.std(part) if part.std() else part for part in (by_seed, by_class - by_class.mean(), cells))
    difference = gain + sum(size / 100 * part for size, part in zip((seed, class_, cell), parts, strict=True))
    return ClassScores(0.5 + difference, seeds=range(n)), ClassScores(np.full((n, c), 0.5), seeds=range(n))


def test_the_seeds_needed_decide_and_one_less_does_not():
    found = two_way_difference(*rows(seed=2.5, class_=0.5, cell=1.0))
    assert decide(found) == "undecided"
    needed = seeds_needed(found)
    assert needed > 6
    assert decide(project_interval(found, seeds=needed)) == "better"
    assert decide(project_interval(found, seeds=needed - 1)) == "undecided"
    assert describe_seeds_needed(found, 0.005) == (
        f"If the difference stays this size, {needed} seeds (6 now) would settle it."
    )


def test_more_seeds_do_not_help_where_classes_limit_it():
    found = two_way_difference(*rows(seed=0.1, class_=5.0, cell=1.0))
    assert (decide(found), seeds_needed(found)) == ("undecided", None)
    needed = classes_needed(found)
    assert decide(project_interval(found, classes=needed)) == "better"
    assert decide(project_interval(found, classes=needed - 1)) == "undecided"
    told = describe_seeds_needed(found, 0.005)
    assert told.startswith("More seeds do not help, the classes limit it: if the difference stays this size, ")
    assert told.endswith(f"{needed} classes (30 now) would settle it.")


def test_either_may_tell():
    found = two_way_difference(*rows(seed=0.7, class_=1.0, cell=7.0, gain=0.0075))
    assert decide(found) == "undecided"
    seeds, classes = f"{seeds_needed(found)} seeds (6 now)", f"{classes_needed(found)} classes (30 now)"
    assert (
        describe_seeds_needed(found, 0.005)
        == f"If the difference stays this size, {seeds} or {classes} would settle it."
    )


def test_sometimes_it_takes_both():
    found = two_way_difference(*rows(seed=3.0, class_=8.0, cell=1.0, gain=0.0045))
    assert (seeds_needed(found), classes_needed(found)) == (None, None)
    assert describe_seeds_needed(found, 0.005).endswith("nor do more classes alone: it takes both.")


def test_rows_without_seeds_need_classes():
    a, b = rows(seed=0, class_=5.0, cell=0)
    found = two_way_difference(*(ClassScores(row.values[:1], seeds=None) for row in (a, b)))
    needed = f"{classes_needed(found)} classes (30 now)"
    assert (
        describe_seeds_needed(found, 0.005)
        == f"There are no seeds: if the difference stays this size, {needed} would settle it."
    )


def test_these_classes_need_seeds():
    found = two_way_difference(*rows(seed=2.5, class_=9.0, cell=1.0), estimand=THESE_CLASSES)
    assert seeds_needed(found) < 1000
    assert classes_needed(found) is None
    loud = two_way_difference(*rows(seed=80.0, class_=9.0, cell=1.0), estimand=THESE_CLASSES)
    assert describe_seeds_needed(loud, 0.005) == "Even 1,000 seeds would not settle it."
    assert math.isnan(two_way_difference(*(row.select(seeds=[0]) for row in rows(1, 1, 1)), estimand=THESE_CLASSES).low)
