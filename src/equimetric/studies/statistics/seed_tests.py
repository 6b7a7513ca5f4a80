"""Tests over seeds: t, exact sign flips and Wilcoxon where two rows share their seeds, Welch where they do not.

Give one value per run: folds of one run are not independent, so average them first. These tests speak of new seeds on
the same test classes; for new classes as well, use `two_way_difference`.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.intervals import Values, check_values, t_quantile

__all__ = [
    "MAX_FLIPPED_PAIRS",
    "SignFlipTest",
    "TTest",
    "TestName",
    "WilcoxonTest",
    "paired_t_test",
    "sign_flip_test",
    "smallest_p",
    "welch_t_test",
    "wilcoxon_test",
]

TestName: TypeAlias = Literal["t", "sign flips", "Wilcoxon"]

MAX_FLIPPED_PAIRS = 24
"""Pairs up to which all sign patterns are counted."""


@dataclass(frozen=True)
class TTest:
    """Mean of a − mean of b, with its interval and the two-sided p-value for the hypothesis that it is zero."""

    mean_difference: float
    half_width: float
    statistic: float
    degrees_of_freedom: float
    p_value: float
    confidence: float = 0.95

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end of the interval of the mean difference."""
        return self.mean_difference - self.half_width, self.mean_difference + self.half_width


@dataclass(frozen=True)
class SignFlipTest:
    """Mean of a − b and the exact share of all sign patterns whose mean is at least as far from zero."""

    mean_difference: float
    p_value: float
    permutations: int


@dataclass(frozen=True)
class WilcoxonTest:
    """Wilcoxon's signed-rank statistic and its two-sided p-value."""

    statistic: float
    p_value: float


def paired_t_test(a: Values, b: Values, confidence: float = 0.95) -> TTest:
    """T = mean(d) / (s_d / √n) over the differences d = a − b of runs that share a seed or fold."""
    difference = _paired_differences(a, b, min_length=2)
    n = len(difference)
    error = float(difference.std(ddof=1)) / math.sqrt(n)
    return _t_test(float(difference.mean()), error, n - 1, confidence)


def welch_t_test(a: Values, b: Values, confidence: float = 0.95) -> TTest:
    """For unpaired runs: t = (mean(a) − mean(b)) / √(s_a²/n_a + s_b²/n_b), degrees of freedom by Satterthwaite."""
    a, b = check_values(a, "a", min_length=2), check_values(b, "b", min_length=2)
    share_a, share_b = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    total = share_a + share_b
    if total == 0:
        degrees = float(len(a) + len(b) - 2)
    else:
        degrees = 1 / ((share_a / total) ** 2 / (len(a) - 1) + (share_b / total) ** 2 / (len(b) - 1))
    return _t_test(float(a.mean() - b.mean()), math.sqrt(total), degrees, confidence)


def sign_flip_test(a: Values, b: Values) -> SignFlipTest:
    """Exact paired permutation test: under the null hypothesis the sign of every difference a_i − b_i is random.

    p = #{σ ∈ {±1}^n : |Σ σ_i d_i| ≥ |Σ d_i|} / 2^n. The smallest p that n pairs can give is 2^(1−n).
    """
    difference = _paired_differences(a, b, min_length=1)
    n = len(difference)
    if n > MAX_FLIPPED_PAIRS:
        raise EquimetricError(
            f"the exact sign-flip test of {n} pairs would need 2^{n} sums; "
            f"use paired_t_test above {MAX_FLIPPED_PAIRS} pairs"
        )
    # Fix the first sign: a pattern and its negative have the same distance from zero.
    sums = difference[:1]
    for step in difference[1:]:
        sums = np.concatenate([sums + step, sums - step])
    # Sums that are equal in decimal may differ in their last bits, depending on the order of addition.
    rounding = 1e-12 * float(np.abs(difference).sum())
    extreme = np.abs(sums) >= abs(float(difference.sum())) - rounding
    return SignFlipTest(float(difference.mean()), float(extreme.mean()), 2**n)


def wilcoxon_test(a: Values, b: Values) -> WilcoxonTest:
    """Signed-rank test of the differences a − b (scipy): exact for up to 50 pairs without ties and zeros.

    Differences of zero are left out; with nothing left, p = 1.
    """
    from scipy.stats import wilcoxon

    difference = _paired_differences(a, b, min_length=1)
    if not difference.any():
        return WilcoxonTest(0.0, 1.0)
    result = wilcoxon(difference)
    return WilcoxonTest(float(result.statistic), float(result.pvalue))


def smallest_p(test: TestName, n: int, comparisons: int = 1) -> float:
    """The smallest two-sided p that n seeds allow, after Holm's adjustment for this number of comparisons.

    2^(1−n) for sign flips and Wilcoxon's test, however large the difference; the t-test has no limit from n = 2 on.
    """
    if n < 1 or comparisons < 1:
        raise EquimetricError(f"n is {n} and comparisons is {comparisons}; both must be 1 or more")
    if test == "t":
        return 0.0 if n > 1 else 1.0
    return min(1.0, comparisons * 2.0 ** (1 - n))


def _t_test(difference: float, error: float, degrees: float, confidence: float) -> TTest:
    """The test of a difference with this standard error; without spread any difference has p = 0."""
    from scipy.special import stdtr

    without_spread = math.copysign(math.inf, difference) if difference else 0.0
    statistic = difference / error if error > 0 else without_spread
    p_value = 2 * float(stdtr(degrees, -abs(statistic)))
    half_width = t_quantile(confidence, degrees) * error
    return TTest(difference, half_width, statistic, degrees, p_value, confidence)


def _paired_differences(a: Values, b: Values, *, min_length: int) -> NDArray[np.float64]:
    first, second = check_values(a, "a", min_length=min_length), check_values(b, "b", min_length=min_length)
    if len(first) != len(second):
        raise EquimetricError(
            f"a has {len(first)} runs and b has {len(second)}; a paired test needs the same seeds for both, "
            "otherwise use welch_t_test"
        )
    return first - second
