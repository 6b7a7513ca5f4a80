import itertools
import math

import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.studies.statistics import (
    holm,
    paired_t_test,
    sign_flip_test,
    t_interval,
    welch_t_test,
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
