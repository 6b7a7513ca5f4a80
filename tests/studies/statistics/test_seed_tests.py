import itertools
import math

import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.studies.statistics import (
    ClassScores,
    compare_seeds,
    effect_size,
    holm,
    paired_t_test,
    sign_flip_test,
    smallest_p,
    t_interval,
    welch_t_test,
    wilcoxon_test,
)

A = [59.41, 59.87, 59.12, 60.05, 59.63, 59.3, 59.95, 59.71, 59.18, 59.58]
B = [58.9, 59.75, 58.71, 59.62, 59.8, 58.95, 59.41, 59.3, 59.02, 59.11]


def test_interval_of_ten_runs():
    interval = t_interval(A)
    assert (interval.mean, interval.n, interval.confidence) == (pytest.approx(59.58), 10, 0.95)
    assert interval.deviation == pytest.approx(0.3232130360407313)
    assert interval.half_width == pytest.approx(0.2312126774314825)
    assert (interval.low, interval.high) == (pytest.approx(59.34878732256852), pytest.approx(59.81121267743148))


def test_interval_widens_with_confidence():
    # Student's t of one degree of freedom is tan(π/2 · confidence); the mean of (0, 2) has standard error 1.
    for confidence in (0.5, 0.9, 0.99):
        assert t_interval([0, 2], confidence).half_width == pytest.approx(math.tan(math.pi / 2 * confidence))


def test_one_run_has_no_spread():
    interval = t_interval([0.7])
    assert (interval.mean, interval.n) == (0.7, 1)
    assert all(math.isnan(value) for value in (interval.half_width, interval.deviation, interval.low, interval.high))


def test_equal_runs_have_a_spread_of_zero():
    assert (t_interval([0.5, 0.5, 0.5]).half_width, t_interval(np.array([0.5, 0.5])).deviation) == (0, 0)


def test_paired_t_test():
    test = paired_t_test(A, B)
    assert test.mean_difference == pytest.approx(0.323)
    assert test.statistic == pytest.approx(4.610053933558681)
    assert test.p_value == pytest.approx(0.0012722023913547059)
    assert test.half_width == pytest.approx(0.15849635906966092)
    assert test.interval == (pytest.approx(0.16450364093), pytest.approx(0.48149635907))
    assert test.degrees_of_freedom == 9


def test_welch_t_test():
    test = welch_t_test(A, B)
    assert test.mean_difference == pytest.approx(0.323)
    assert test.statistic == pytest.approx(2.0502209247410077)
    assert test.degrees_of_freedom == pytest.approx(17.560457343204245)
    assert test.p_value == pytest.approx(0.05557732296354445)


def test_welch_interval_contains_zero_exactly_when_p_exceeds_its_level():
    p = welch_t_test(A, B[:7]).p_value
    for confidence, inside in ((1 - p + 1e-6, True), (1 - p - 1e-6, False)):
        low, high = welch_t_test(A, B[:7], confidence).interval
        assert (low < 0 < high) is inside


@pytest.mark.parametrize("test", [paired_t_test, welch_t_test])
def test_swapping_the_methods_swaps_the_sign_only(test):
    one, other = test(A, B), test(B, A)
    assert one.statistic == -other.statistic
    assert one.mean_difference == -other.mean_difference
    assert one.p_value == other.p_value


@pytest.mark.parametrize("test", [paired_t_test, welch_t_test])
def test_without_spread_any_difference_has_p_zero(test):
    assert (test([2, 2, 2], [2, 2, 2]).p_value, test([2, 2, 2], [2, 2, 2]).statistic) == (1, 0)
    assert (test([1, 1], [2, 2]).p_value, test([1, 1], [2, 2]).statistic) == (0, -math.inf)
    assert test([1, 1], [2, 2]).interval == (-1, -1)


def test_sign_flip_test():
    test = sign_flip_test(A, B)
    assert (test.p_value, test.permutations) == (0.0078125, 1024)
    assert test.mean_difference == pytest.approx(0.323)


def test_sign_flip_test_counts_every_pattern():
    difference = [3, -1, 4, -1, 5, -9, 2]
    totals = [
        abs(sum(s * d for s, d in zip(signs, difference, strict=True)))
        for signs in itertools.product((1, -1), repeat=7)
    ]
    expected = sum(total >= abs(sum(difference)) for total in totals) / 2**7
    assert sign_flip_test(difference, [0] * 7).p_value == expected


def test_sign_flip_test_counts_decimal_ties():
    # Σ ±0.1, ±0.2, ±0.3 reaches |0.1 + 0.2 + 0.3| for two patterns only, |0.3 − 0.2 − 0.1| = 0 for all.
    assert sign_flip_test([0.1, 0.2, 0.3], [0, 0, 0]).p_value == 0.25
    assert sign_flip_test([0.1, 0.2, -0.3], [0, 0, 0]).p_value == 1
    assert sign_flip_test([0.3, 0.1, 0.2], [0.3, 0.1, 0.2]).p_value == 1
    assert sign_flip_test([1], [0]).p_value == 1


def test_wilcoxon():
    test = wilcoxon_test(A, B)
    assert (test.statistic, test.p_value) == (3.0, 0.009765625)
    assert wilcoxon_test([1, 2], [1, 2]).p_value == 1
    # The zero is left out: two differences of one sign.
    assert wilcoxon_test([1, 2, 3], [1, 1, 1]).p_value == 0.5


@pytest.mark.parametrize(("test", "run"), [("sign flips", sign_flip_test), ("Wilcoxon", wilcoxon_test)])
@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_the_smallest_p_is_that_of_differences_of_one_sign(test, run, n):
    differences = 1.0 + np.arange(n)
    assert smallest_p(test, n) == run(differences, np.zeros(n)).p_value
    assert smallest_p(test, n, comparisons=3) == min(1, 3 * smallest_p(test, n))


def test_a_t_test_has_no_smallest_p_from_two_seeds_on():
    assert (smallest_p("t", 1), smallest_p("t", 2), smallest_p("t", 2, 100)) == (1, 0, 0)


def row(values, seeds=range(10)):
    """A row of one class, whose score is that of the seed."""
    return ClassScores([[value] for value in values], seeds=seeds)


def test_rows_with_common_seeds_are_tested_in_pairs():
    found = compare_seeds(row(A), row(B[::-1], seeds=range(9, -1, -1)))
    assert (found.pairing, found.seeds) == ("same seeds", (10,))
    assert found.t.p_value == pytest.approx(0.0012722023913547059)
    assert (found.sign_flip.p_value, found.wilcoxon.p_value) == (0.0078125, 0.009765625)


def test_rows_with_different_seeds_are_tested_by_welch():
    found = compare_seeds(row(A), row(B, seeds=range(10, 20)))
    assert (found.pairing, found.seeds) == ("different seeds", (10, 10))
    assert (found.t.p_value, found.sign_flip, found.wilcoxon) == (pytest.approx(0.05557732296354445), None, None)


def test_a_row_without_seeds_is_a_constant():
    found = compare_seeds(row(A), row([59], seeds=None))
    assert (found.pairing, found.t) == ("against a row without seeds", paired_t_test(A, [59] * 10))


def test_many_seeds_have_no_exact_sign_flips():
    found = compare_seeds(row(np.arange(25.0), range(25)), row(np.zeros(25), range(25)))
    assert (found.sign_flip, found.wilcoxon.p_value < 0.001) == (None, True)


def test_one_seed_cannot_be_tested():
    with pytest.raises(EquimetricError, match="need at least two seeds; use two_way_difference"):
        compare_seeds(row(A[:1], seeds=[0]), row(B))


def test_effect_sizes():
    found = effect_size(row(A), row(B))
    pooled = math.sqrt((np.var(A, ddof=1) + np.var(B, ddof=1)) / 2)
    assert (found.difference, found.points(1)) == (pytest.approx(0.323), pytest.approx(0.323))
    assert found.standardized == pytest.approx(0.323 / pooled)
    assert effect_size(row(A), row([59], seeds=None)).deviation == pytest.approx(0.3232130360407313)
    assert math.isnan(effect_size(row([60], seeds=None), row([59], seeds=None)).standardized)
    assert effect_size(row([2, 2], seeds="ab"), row([3, 3], seeds="ab")).standardized == -math.inf


def test_holm():
    assert holm([0.004, 0.03, 0.02, 0.2]) == pytest.approx([0.016, 0.06, 0.06, 0.2])
    assert holm([0.6, 0.5]) == [1, 1]
    assert holm([0.03]) == [0.03]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: t_interval([]), "values hold 0 numbers; at least 1"),
        (lambda: t_interval([1, math.nan]), "values contain NaN or infinite numbers; leave failed runs out"),
        (lambda: t_interval([[1, 2]]), r"values have shape \(1, 2\); give a plain list"),
        (lambda: t_interval([1, 2], 95), "confidence is 95; it must lie between 0 and 1"),
        (lambda: t_interval([1], 95), "confidence is 95; it must lie between 0 and 1"),
        (lambda: paired_t_test([1], [2]), "a hold 1 numbers; at least 2"),
        (lambda: paired_t_test([1, 2], [2, 3, 4]), "a has 2 runs and b has 3; .* welch_t_test"),
        (lambda: welch_t_test([1, 2], [2]), "b hold 1 numbers; at least 2"),
        (lambda: sign_flip_test([1] * 25, [0] * 25), r"25 pairs would need 2\^25 sums; use paired_t_test"),
        (lambda: holm([0.1, 1.5]), "p_values must lie between 0 and 1"),
    ],
)
def test_invalid_numbers_raise_an_error(call, message):
    with pytest.raises(EquimetricError, match=message):
        call()
