"""Shares of variance of seeds, folds, classes and trials."""

import itertools

import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.studies.statistics import ClassScores, balanced_scores, two_way_interval, variance_components


def by_name(components):
    return {one.name: one for one in components}


def test_a_table_of_four_scores():
    # Mean squares: 4 between rows, 9 between columns, 1 left; each row and column holds two scores.
    found = by_name(variance_components([[1, 3], [2, 6]], ["seed", "class"]))
    assert {name: one.variance for name, one in found.items()} == pytest.approx(
        {"seed": 1.5, "class": 4.0, "seed × class": 1.0}
    )
    assert found["class"].share == pytest.approx(4 / 6.5)
    assert [one.degrees for one in found.values()] == [1, 1, 1]


def test_two_factors_are_the_parts_of_the_two_way_interval():
    values = np.random.default_rng(0).normal(size=(5, 7)) + np.arange(7) + np.arange(5)[:, None]
    found = by_name(variance_components(values, ["seed", "class"]))
    parts = two_way_interval(ClassScores(values, seeds=range(5))).parts
    assert tuple(one.variance for one in found.values()) == pytest.approx(parts)


def test_three_factors_agree_with_expected_mean_squares():
    values = np.random.default_rng(1).normal(size=(3, 4, 5)) + np.arange(3.0)[:, None, None]
    found = variance_components(values, ["seed", "fold", "class"])
    assert [one.name for one in found] == [
        "seed",
        "fold",
        "class",
        "seed × fold",
        "seed × class",
        "fold × class",
        "seed × fold × class",
    ]
    # MS of seeds from its textbook form, and its expectation from the unclipped components.
    of_seed = 20 * values.mean(axis=(1, 2)).var(ddof=1)
    pair = [values.mean(axis=axis) for axis in (2, 1)]
    residuals = [one - one.mean(0) - one.mean(1, keepdims=True) + one.mean() for one in pair]
    ms_fold, ms_class = 5 * np.square(residuals[0]).sum() / 6, 4 * np.square(residuals[1]).sum() / 8
    top = found[-1].variance
    assert by_name(found)["seed"].variance == pytest.approx((of_seed - ms_fold - ms_class + top) / 20)


def test_the_estimates_are_unbiased():
    rng = np.random.default_rng(2)
    sizes, truth = (6, 4, 10), {"seed": 1.0, "fold": 4.0, "class": 9.0, "fold × class": 2.0, "seed × fold × class": 1.0}
    names = ("seed", "fold", "class")
    total = dict.fromkeys(truth, 0.0)
    for _ in range(400):
        values = np.zeros(sizes)
        for name, variance in truth.items():
            shape = [size if factor in name.split(" × ") else 1 for factor, size in zip(names, sizes, strict=True)]
            values = values + rng.normal(0, np.sqrt(variance), shape)
        for name, one in by_name(variance_components(values, names)).items():
            if name in total:
                total[name] += one.variance / 400
    assert total == pytest.approx(truth, rel=0.15)


def test_a_fixed_factor_pools_its_levels():
    one, other = np.random.default_rng(3).normal(size=(2, 5, 7)) + np.arange(7) + np.arange(5)[:, None]
    pooled = variance_components([one, other + 100], ["method", "seed", "class"], fixed=["method"])
    single = [by_name(variance_components(values, ["seed", "class"])) for values in (one, other)]
    for component in pooled:
        assert component.variance == pytest.approx(np.mean([found[component.name].variance for found in single]))
    assert [component.degrees for component in pooled] == [8, 12, 48]
    moved = variance_components(np.moveaxis([one, other], 0, 2), ["seed", "class", "method"], fixed=["method"])
    assert [component.variance for component in moved] == pytest.approx([component.variance for component in pooled])


def test_negative_estimates_are_set_to_zero():
    checkerboard = 1.0 - 2 * (np.indices((4, 6)).sum(axis=0) % 2)
    found = by_name(variance_components(checkerboard, ["seed", "class"]))
    assert [(one.variance, one.clipped) for one in found.values()][:2] == [(0, True), (0, True)]
    assert found["seed × class"].share == 1
    assert all(one.share == 0 for one in variance_components(np.ones((2, 2)), ["seed", "class"]))


def records():
    return [
        {"method": m, "seed": s, "fold": f, "value": 10 * s + f + 100 * m}
        for f, s, m in itertools.product(range(2), range(3), range(2))
    ]


def test_records_become_an_array():
    array, levels = balanced_scores(records(), ["method", "seed", "fold"])
    assert array.shape == (2, 3, 2)
    assert (array[1, 2, 1], levels["seed"]) == (121, (0, 1, 2))
    found = by_name(variance_components(array, list(levels), fixed=["method"]))
    assert found["seed"].variance == pytest.approx(100)
    assert found["fold"].variance == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: balanced_scores(records()[:-1], ["method", "seed", "fold"]),
            r"1 of 12 scores are missing, the first is "
            r"method 1, seed 2, fold 1; variance components need all combinations",
        ),
        (lambda: balanced_scores(records(), ["method", "seed"]), "two scores have method 0, seed 0; average them"),
        (lambda: balanced_scores(records(), ["trial"]), "a record has no 'trial', only 'method', 'seed'"),
        (lambda: variance_components(np.ones((2, 3)), ["seed"]), "need one name per axis"),
        (lambda: variance_components(np.ones((2, 3)), ["seed", "class"], fixed=["method"]), "need one name per axis"),
        (lambda: variance_components(np.ones((1, 3)), ["seed", "class"]), "'seed' has one level"),
        (lambda: variance_components([[1, np.nan], [1, 2]], ["seed", "class"]), "leave out the levels of failed runs"),
    ],
)
def test_invalid_designs_raise_an_error(call, message):
    with pytest.raises(EquimetricError, match=message):
        call()
