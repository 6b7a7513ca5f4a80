"""How often intervals contain the truth, over simulated repetitions of a comparison with new seeds and new classes.

Two methods have class difficulties and seed effects in common. Their difference has a standard deviation over seeds,
over classes, and of single cells, all in points.
"""

from typing import NamedTuple

import numpy as np
import pytest

from equimetric.seeding import derive_seed
from equimetric.studies.statistics import THESE_CLASSES, ClassScores, two_way_difference


class Case(NamedTuple):
    seeds: int
    classes: int
    seed: float
    class_: float
    cell: float
    pairing: str = "same seeds"
    size_gain: float = 0.0


CASES = {
    "typical": Case(10, 40, 0.35, 2.4, 3.2),
    "uneven classes": Case(10, 40, 0.35, 2.4, 3.2, size_gain=0.3),
    "large classes gain": Case(10, 40, 0.35, 2.4, 3.2, size_gain=1.0),
    "more classes": Case(5, 100, 0.6, 4.0, 5.0),
    "three seeds": Case(3, 30, 0.5, 2.0, 3.0),
    "mostly seeds": Case(10, 40, 2.0, 0.5, 2.0),
    "mostly cells": Case(10, 40, 0.1, 0.3, 5.0),
    "different seeds": Case(10, 40, 0.35, 2.4, 3.2, "different seeds"),
    "against a row without seeds": Case(10, 40, 0.35, 2.4, 3.2, "against a row without seeds"),
}


def draw(case, generator):
    """Two rows whose true difference is 0; with `size_gain`, classes have 1 + Gamma(4) queries, and large ones gain."""
    n, c = case.seeds, case.classes
    normal = generator.normal
    difficulty, gain = normal(60, 20, c), normal(0, case.class_, c)
    queries = np.ones(c)
    if case.size_gain:
        queries += generator.gamma(4, 1, c)
        # E[queries · gain] is 0: Gamma(4) has mean and variance 4.
        gain += case.size_gain * case.class_ * ((queries - 5) / 2 - 0.4)
    shared = normal(0, 1, (n, 1)) if case.pairing == "same seeds" else 0.0
    noise = [normal(0, case.seed, (n, 1)) + normal(0, case.cell, (n, c)) for _ in range(2)]
    if case.pairing == "against a row without seeds":
        other = difficulty[None]
    else:
        noise = [part / np.sqrt(2) for part in noise]
        other = difficulty + shared + noise[1]
    ids = {"same seeds": range(n), "different seeds": range(n, 2 * n)}.get(case.pairing)
    weights = queries / queries.sum()
    first = ClassScores(difficulty + gain + shared + noise[0], seeds=range(n), weights=weights)
    return first, ClassScores(other, seeds=ids, weights=weights)


def coverage(name, repetitions):
    """Share of two-way intervals, and of t-intervals over seeds, that contain the true difference 0."""
    case, generator = CASES[name], np.random.default_rng(derive_seed("coverage", name))
    hits = np.zeros(2)
    for _ in range(repetitions):
        a, b = draw(case, generator)
        both, seeds_only = two_way_difference(a, b), two_way_difference(a, b, estimand=THESE_CLASSES)
        assert both.pairing == case.pairing
        hits += [interval.low <= 0 <= interval.high for interval in (both, seeds_only)]
    return hits / repetitions


@pytest.mark.parametrize("name", CASES)
def test_two_way_intervals_contain_the_truth(name):
    # Two standard errors of 500 repetitions around 94 … 97 %.
    assert 0.92 <= coverage(name, 500)[0] <= 0.99


def test_intervals_over_seeds_alone_miss_it_where_classes_matter():
    assert 0.62 <= coverage("typical", 500)[1] <= 0.74


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_way_intervals_contain_the_truth_in_many_repetitions(name):
    both, seeds_only = coverage(name, 6000)
    assert (0.925 if name == "large classes gain" else 0.935) <= both <= 0.98
    if name == "typical":
        assert 0.66 <= seeds_only <= 0.70
