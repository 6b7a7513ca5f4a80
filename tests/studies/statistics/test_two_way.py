"""Intervals over seeds × classes."""

import math

import numpy as np
import pytest
from scipy import stats

from equimetric.errors import EquimetricError
from equimetric.studies.statistics import (
    THESE_CLASSES,
    ClassScores,
    average_folds,
    minimum_detectable_difference,
    paired_t_test,
    project_interval,
    t_interval,
    two_way_difference,
    two_way_interval,
    welch_t_test,
)
from equimetric.studies.statistics.pooling import pool_seeds

rng = np.random.default_rng(7)
A, B = rng.normal(0.6, 0.1, (6, 9)), rng.normal(0.5, 0.1, (6, 9))
SHARES = np.arange(1.0, 10) / 45


def scores(values, seeds=range(6), **options):
    return ClassScores(values, seeds=seeds, **options)


def plain_terms(d, weights):
    """v_s, v_c and v_e, cell by cell."""
    n, c = d.shape
    mean = sum(weights[j] * d[i, j] for i in range(n) for j in range(c)) / n
    z = [[c * weights[j] * (d[i, j] - mean) for j in range(c)] for i in range(n)]
    rows = [sum(row) / c for row in z]
    columns = [sum(row[j] for row in z) / n for j in range(c)]
    middle = sum(rows) / n
    v_s = sum((row - middle) ** 2 for row in rows) / (n - 1) / n
    v_c = sum((column - middle) ** 2 for column in columns) / (c - 1) / c
    squares = sum((z[i][j] - rows[i] - columns[j] + middle) ** 2 for i in range(n) for j in range(c))
    return v_s, v_c, squares / ((n - 1) * (c - 1) * n * c)


def test_a_table_of_four_scores():
    # Means of rows 2, 4 and columns 1.5, 4.5, residuals ± 0.5: v_s = 1, v_c = 2.25, v_e = 0.25.
    found = two_way_interval(scores([[1, 3], [2, 6]], seeds=[0, 1]))
    assert (found.mean, found.variance) == (3, pytest.approx(3))
    assert found.degrees_of_freedom == pytest.approx(9 / (1 + 2.25**2 + 0.25**2))
    assert found.parts == pytest.approx((2 * 0.75, 2 * 2, 4 * 0.25))
    # Each term with its own quantile, of one degree of freedom here.
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 1) * math.sqrt(1 + 2.25 - 0.25))
    assert found.basis == "2 seeds × 2 classes"


@pytest.mark.parametrize("weights", [None, SHARES])
def test_it_follows_the_formula(weights):
    a, b = scores(A, weights=weights), scores(B, weights=weights)
    found = two_way_difference(a, b)
    v_s, v_c, v_e = plain_terms(A - B, a.weights)
    variance = max(v_s + v_c - v_e, v_s, v_c)
    assert found.mean == pytest.approx(a.mean - b.mean)
    assert found.variance == pytest.approx(variance)
    if variance > max(v_s, v_c):
        assert found.degrees_of_freedom == pytest.approx(variance**2 / (v_s**2 / 5 + v_c**2 / 8 + v_e**2 / 40))
    t_s, t_c = (stats.t.ppf(0.975, degrees) ** 2 for degrees in (5, 8))
    assert found.half_width**2 == pytest.approx(max(t_s * v_s + t_c * (v_c - v_e), t_s * v_s, t_c * v_c))
    assert found.at(1 - found.p_value).low == pytest.approx(0, abs=1e-9)


def test_the_maximum_takes_one_term_with_its_degrees_of_freedom():
    # Residuals without an effect of seeds (or classes): v_e is larger than that term.
    checkerboard = 1 - 2 * (np.indices((4, 6)).sum(axis=0) % 2)
    by_class = two_way_interval(scores(checkerboard + np.arange(6.0), seeds=range(4)))
    assert (by_class.variance, by_class.degrees_of_freedom) == (pytest.approx(3.5 / 6), 5)
    by_seed = two_way_interval(scores(checkerboard + np.arange(4.0)[:, None], seeds=range(4)))
    assert (by_seed.variance, by_seed.degrees_of_freedom) == (pytest.approx(5 / 3 / 4), 3)


def test_equal_weights_are_the_mean_over_classes():
    plain, weighted = scores(A), scores(A, weights=np.full(9, 1 / 9))
    assert two_way_interval(plain) == two_way_interval(weighted)
    assert plain.mean == pytest.approx(A.mean())


def test_query_averages_are_the_number_printed():
    labels = np.repeat(np.arange(9), np.arange(1, 10))
    queries = rng.uniform(size=(6, 45))
    row = ClassScores.from_queries(queries, labels, seeds=range(6))
    assert row.seed_means == pytest.approx(queries.mean(axis=1))
    assert two_way_interval(row).mean == pytest.approx(queries.mean())
    assert row.weights == pytest.approx(SHARES)
    by_class = ClassScores.from_queries(queries, labels, seeds=range(6), average="classes")
    assert by_class.mean == pytest.approx(np.mean([queries[:, labels == c].mean() for c in range(9)]))


def test_a_row_without_seeds_has_classes_only_and_says_so():
    found = two_way_interval(ClassScores(A[:1], seeds=None))
    assert found.variance == pytest.approx(A[0].var(ddof=1) / 9)
    assert (found.degrees_of_freedom, found.seeds) == (8, ())
    assert found.basis == "9 classes only: there are no seeds"
    exact = two_way_interval(ClassScores(A[:1], seeds=None), estimand=THESE_CLASSES)
    assert (exact.half_width, exact.basis) == (0, "no seeds, for these 9 classes")


def test_one_seed_leaves_the_spread_over_seeds_unknown():
    found = two_way_interval(scores(A[:1], seeds=[3]))
    assert found.variance == pytest.approx(A[0].var(ddof=1) / 9)
    assert math.isnan(found.p_value)
    assert found.basis == "9 classes only: with one seed the spread over seeds is unknown"
    assert math.isnan(two_way_interval(scores(A[:1], seeds=[3]), estimand=THESE_CLASSES).half_width)


def test_these_classes_have_the_t_interval_over_seeds():
    a, b = scores(A, weights=SHARES), scores(B, weights=SHARES)
    row, expected = two_way_interval(a, estimand=THESE_CLASSES), t_interval(A @ SHARES)
    assert (row.mean, row.half_width) == (pytest.approx(expected.mean), pytest.approx(expected.half_width))
    paired, test = two_way_difference(a, b, estimand=THESE_CLASSES), paired_t_test(A @ SHARES, B @ SHARES)
    assert (paired.half_width, paired.p_value) == (pytest.approx(test.half_width), pytest.approx(test.p_value))
    assert paired.basis == "6 seeds, for these 9 classes"
    other = scores(B[:4], seeds=range(6, 10), weights=SHARES)
    unpaired, welch = two_way_difference(a, other, estimand=THESE_CLASSES), welch_t_test(A @ SHARES, B[:4] @ SHARES)
    assert unpaired.degrees_of_freedom == pytest.approx(welch.degrees_of_freedom)
    assert unpaired.half_width == pytest.approx(welch.half_width)


def test_one_class_stands_for_a_metric_without_classes():
    row = scores(A[:, :1])
    assert two_way_interval(row, estimand=THESE_CLASSES).half_width == pytest.approx(t_interval(A[:, 0]).half_width)
    with pytest.raises(
        EquimetricError, match="one class says nothing about new ones; use the estimand 'these classes'"
    ):
        two_way_interval(row)


def test_a_difference_from_a_row_without_seeds_is_taken_seed_by_seed():
    constant = ClassScores(B[:1], seeds=None)
    found = two_way_difference(scores(A), constant)
    alone = two_way_interval(scores(A - B[:1]))
    assert (found.mean, found.variance) == (pytest.approx(alone.mean), pytest.approx(alone.variance))
    assert found.pairing == "against a row without seeds"
    assert two_way_difference(constant, scores(A)).mean == pytest.approx(-found.mean)
    both = two_way_difference(ClassScores(A[:1], seeds=None), constant)
    assert (both.pairing, both.degrees_of_freedom) == ("no seeds", 8)


def test_the_same_seeds_are_subtracted_in_any_order():
    found = two_way_difference(scores(A), scores(B[::-1], seeds=range(5, -1, -1)))
    expected = two_way_interval(scores(A - B))
    assert (found.pairing, found.seeds) == ("same seeds", (6,))
    assert (found.mean, found.half_width) == (pytest.approx(expected.mean), pytest.approx(expected.half_width))


def test_a_difference_is_that_of_the_scores_printed():
    # Seeds 3 to 5 are common; those alone would have another difference than the rows.
    found = two_way_difference(scores(A), scores(B, seeds=range(3, 9)))
    assert (found.pairing, found.seeds) == ("different seeds", (6, 6))
    assert found.mean == pytest.approx(scores(A).mean - scores(B).mean)


def test_few_seeds_that_happen_to_agree_do_not_make_an_interval_narrow():
    """Satterthwaite's degrees of freedom are then those of many classes, and the interval misses the truth."""
    generator = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        d = generator.normal(0, 0.9, (3, 1)) + generator.normal(0, 5.6, 300) + generator.normal(0, 8.4, (3, 300))
        hits += abs((found := two_way_interval(scores(d, seeds=range(3)))).mean) <= found.half_width
    assert hits / 300 >= 0.935


def test_rows_that_are_alike_share_their_spread_over_seeds():
    rows = {name: scores(A * k, seeds=range(6)) for name, k in (("a", 1), ("b", 1.1), ("c", 0.9))}
    rows["other"] = scores(B, seeds=range(6))
    rows["raw"] = ClassScores(B[:1], seeds=None)
    pooled = pool_seeds(rows, ("a", "b", "c", "raw"))
    assert set(pooled) == {"a", "b", "c"}
    means = np.stack([rows[name].seed_means for name in "abc"])
    pairs = [(means[i] - means[j]).var(ddof=1) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert pooled["a"].difference == pytest.approx((np.mean(pairs), 2))
    assert pooled["a"].row.variance == pytest.approx(means.var(axis=1, ddof=1).mean())
    assert 1 <= pooled["a"].row.share <= 3
    found = two_way_difference(rows["a"], rows["b"], pooled=(pooled["a"], pooled["b"]))
    # v = (4 v̄ + 5 s²)/9 with min(4 + 5, 2 · 5) degrees of freedom.
    assert found.terms.seed == pytest.approx((4 * np.mean(pairs) + 5 * pairs[0]) / 9 / 6)
    assert found.terms.seed_degrees == 9
    raw = two_way_difference(rows["a"], rows["raw"], pooled=(pooled["a"], None))
    assert raw.terms.seed == pytest.approx((4 * pooled["a"].row.variance + 5 * means[0].var(ddof=1)) / 9 / 6)
    alone = two_way_difference(rows["a"], rows["other"])
    assert two_way_difference(rows["a"], rows["other"], pooled=(pooled["a"], None)) == alone
    # Two rows have nothing but their own spread.
    assert pool_seeds(rows, ("a", "b")) == {}


def test_different_seeds_add_the_terms_of_both_rows():
    found = two_way_difference(scores(A), scores(B[:4], seeds=range(5, 9)))
    assert (found.pairing, found.seeds, found.basis) == ("different seeds", (6, 4), "6 seeds and 4 seeds × 9 classes")
    (s_a, _, e_a), (s_b, _, e_b) = (plain_terms(rows, np.full(9, 1 / 9)) for rows in (A, B[:4]))
    v_c = (A.mean(axis=0) - B[:4].mean(axis=0)).var(ddof=1) / 9
    assert found.mean == pytest.approx(A.mean() - B[:4].mean())
    assert found.variance == pytest.approx(max(s_a + s_b + v_c - e_a - e_b, s_a + s_b, v_c))


def test_a_single_seed_against_many_adds_what_is_known():
    found = two_way_difference(scores(A), scores(B[:1], seeds=[0]))
    assert (found.pairing, found.seeds) == ("different seeds", (6, 1))
    assert found.variance == pytest.approx(two_way_difference(scores(A), ClassScores(B[:1], seeds=None)).variance)
    assert math.isnan(found.p_value)


def test_the_order_of_classes_does_not_matter():
    back = scores(B[:, ::-1], classes=range(8, -1, -1), weights=SHARES[::-1])
    found, expected = (two_way_difference(scores(A, weights=SHARES), b) for b in (back, scores(B, weights=SHARES)))
    assert found == expected


def test_equal_rows_have_no_spread():
    found = two_way_difference(scores(A), scores(A))
    assert (found.mean, found.half_width, found.p_value) == (0, 0, 1)


def test_folds_are_averaged_first():
    folds = rng.uniform(size=(6, 4, 9))
    assert average_folds(folds) == pytest.approx(folds.mean(axis=1))
    assert scores(average_folds(folds)).mean == pytest.approx(folds.mean())


def test_minimum_detectable_difference_has_its_power():
    found = two_way_difference(scores(A), scores(B))
    for confidence, power in ((0.95, 0.8), (0.999, 0.5)):
        interval = found.at(confidence)
        shift = minimum_detectable_difference(interval, power) / interval.error
        quantile = interval.half_width / interval.error
        assert stats.nct.sf(quantile, interval.degrees_of_freedom, shift) == pytest.approx(power, abs=1e-5)


def test_projections():
    found = two_way_difference(scores(A), scores(B))
    same = project_interval(found)
    if found.variance > max(plain_terms(A - B, np.full(9, 1 / 9))[:2]):
        assert same.variance == pytest.approx(found.variance)
        assert same.half_width == pytest.approx(found.half_width)
    seed, class_, residual = found.parts
    more = project_interval(found, seeds=60, classes=90)
    assert more.variance == pytest.approx(seed / 60 + class_ / 90 + residual / 5400)
    unpaired = two_way_difference(scores(A), scores(B, seeds=range(6, 12)))
    assert sum(project_interval(unpaired).seeds) == 12
    fixed = two_way_difference(ClassScores(A[:1], seeds=None), ClassScores(B[:1], seeds=None))
    assert project_interval(fixed, classes=36).variance == pytest.approx(fixed.variance / 4)
    these = two_way_difference(scores(A), scores(B), estimand=THESE_CLASSES)
    assert project_interval(these, seeds=24, classes=90).variance == pytest.approx(these.variance / 4)


HOLED = A.copy()
HOLED[3, 2] = HOLED[3, 5] = np.nan


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scores(A[0]), r"have shape \(9,\); give \(seeds, classes\)"),
        (lambda: scores(np.zeros((6, 4, 9))), "average its folds first"),
        (lambda: scores(A, seeds=range(5)), "5 seeds are named for scores of 6 seeds"),
        (lambda: scores(A, seeds=[0, 0, 1, 2, 3, 4]), "seeds must have different ids"),
        (lambda: scores(A, seeds=None), "a row without seeds has one score per class, not 6"),
        (lambda: scores(A, weights=np.ones(9)), "9 positive shares that sum to 1"),
        (lambda: scores(A, weights=[1, *[0] * 8]), "leave out classes without queries"),
        (
            lambda: two_way_interval(scores(HOLED)),
            r"2 of 54 scores are NaN .* seeds 3 with .*, or classes 2, 5 in every",
        ),
        (lambda: two_way_interval(ClassScores(HOLED[3:4], seeds=None)), "NaN or infinite; leave out classes 2, 5"),
        (lambda: two_way_difference(scores(A), scores(B[:, :8])), r"1 are in one of them only \(8\); leave these out"),
        (lambda: two_way_difference(scores(A), scores(B, weights=SHARES)), "same class weights"),
        (lambda: two_way_interval(scores(A), estimand="all"), "the estimand is 'new seeds and new classes' or"),
        (lambda: two_way_interval(scores(A), confidence=95), "confidence is 95"),
        (lambda: scores(A).without(seeds=range(6)), "at least one seed must be left"),
        (lambda: scores(A).select(classes=[77]), "there is no class 77 in this row"),
        (lambda: average_folds(A), r"\(seeds, folds, classes\), not \(6, 9\)"),
        (lambda: ClassScores.from_queries(A, [0, 1], seeds=range(6)), "one label per query"),
        (lambda: minimum_detectable_difference(two_way_interval(scores(A)), 80), "power is 80"),
        (lambda: project_interval(two_way_interval(scores(A[:1], seeds=[0]))), "run at least two"),
    ],
)
def test_invalid_rows_raise_an_error(call, message):
    with pytest.raises(EquimetricError, match=message):
        call()


def test_what_an_error_says_to_leave_out_can_be_left_out():
    assert two_way_interval(scores(HOLED).without(seeds=[3])) == two_way_interval(
        scores(np.delete(A, 3, axis=0), seeds=[0, 1, 2, 4, 5])
    )
    kept = scores(HOLED, weights=SHARES).without(classes=[2, 5])
    assert kept.weights == pytest.approx(np.delete(SHARES, [2, 5]) / np.delete(SHARES, [2, 5]).sum())
    assert two_way_interval(kept).classes == 7
