"""Statistics of a comparison: intervals and tests over independent runs, as pure functions.

Give one value per run: folds of one run are not independent, so average them first. Compare two methods by a paired
test if they share seeds or folds, otherwise by Welch's test. Correct several comparisons by Holm's method.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError

__all__ = ["Interval", "SignFlipTest", "TTest", "holm", "paired_t_test", "sign_flip_test", "t_interval", "welch_t_test"]

MOST_FLIPS = 24
Values = Sequence[float] | NDArray[np.floating]


@dataclass(frozen=True)
class Interval:
    """A mean over n runs and the half width of its confidence interval.

    `deviation` is the standard deviation of the values (n − 1 in the denominator), which is not an interval. With
    n = 1 the spread is unknown: `deviation` and `half_width` are NaN.
    """

    mean: float
    half_width: float
    n: int
    deviation: float
    confidence: float = 0.95

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half_width


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


def t_interval(values: Values, confidence: float = 0.95) -> Interval:
    """Mean ± t_{(1+confidence)/2, n−1} · s / √n, with s of n − 1 in the denominator; NaN half width for n = 1."""
    array = _check_values(values, "values", least=1)
    n = len(array)
    if n == 1:
        _check_confidence(confidence)
        return Interval(float(array[0]), math.nan, 1, math.nan, confidence)
    deviation = float(array.std(ddof=1))
    half_width = _t_quantile(confidence, n - 1) * deviation / math.sqrt(n)
    return Interval(float(array.mean()), half_width, n, deviation, confidence)


def paired_t_test(a: Values, b: Values, confidence: float = 0.95) -> TTest:
    """T = mean(d) / (s_d / √n) over the differences d = a − b of runs that share a seed or fold."""
    difference = _paired_differences(a, b, least=2)
    n = len(difference)
    error = float(difference.std(ddof=1)) / math.sqrt(n)
    return _t_test(float(difference.mean()), error, n - 1, confidence)


def welch_t_test(a: Values, b: Values, confidence: float = 0.95) -> TTest:
    """For unpaired runs: t = (mean(a) − mean(b)) / √(s_a²/n_a + s_b²/n_b), degrees of freedom by Satterthwaite."""
    a, b = _check_values(a, "a", least=2), _check_values(b, "b", least=2)
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
    difference = _paired_differences(a, b, least=1)
    n = len(difference)
    if n > MOST_FLIPS:
        raise EquimetricError(
            f"the exact sign-flip test of {n} pairs would need 2^{n} sums; use paired_t_test above {MOST_FLIPS} pairs"
        )
    # Fix the first sign: a pattern and its negative have the same distance from zero.
    sums = difference[:1]
    for step in difference[1:]:
        sums = np.concatenate([sums + step, sums - step])
    # Sums that are equal in decimal may differ in their last bits, depending on the order of addition.
    rounding = 1e-12 * float(np.abs(difference).sum())
    extreme = np.abs(sums) >= abs(float(difference.sum())) - rounding
    return SignFlipTest(float(difference.mean()), float(extreme.mean()), 2**n)


def holm(p_values: Values) -> list[float]:
    """Holm's step-down adjustment for m comparisons, in the order given.

    With p_(1) ≤ … ≤ p_(m): adjusted p_(i) = max_{j≤i} min(1, (m − j + 1) · p_(j)).
    """
    p = _check_values(p_values, "p_values", least=1)
    if ((p < 0) | (p > 1)).any():
        raise EquimetricError("p_values must lie between 0 and 1")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(len(p), 0, -1) * p[order]))
    return [float(value) for value in adjusted]


def _t_test(difference: float, error: float, degrees: float, confidence: float) -> TTest:
    """The test of a difference with this standard error; without spread any difference has p = 0."""
    from scipy.special import stdtr

    without_spread = math.copysign(math.inf, difference) if difference else 0.0
    statistic = difference / error if error > 0 else without_spread
    p_value = 2 * float(stdtr(degrees, -abs(statistic)))
    half_width = _t_quantile(confidence, degrees) * error
    return TTest(difference, half_width, statistic, degrees, p_value, confidence)


def _t_quantile(confidence: float, degrees: float) -> float:
    """Student's t at the end of a two-sided interval of this confidence."""
    from scipy.special import stdtrit

    _check_confidence(confidence)
    return float(stdtrit(degrees, (1 + confidence) / 2))


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise EquimetricError(f"confidence is {confidence}; it must lie between 0 and 1, such as 0.95")


def _check_values(values: Values, name: str, *, least: int) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise EquimetricError(f"{name} have shape {array.shape}; give a plain list of numbers, one per run")
    if len(array) < least:
        raise EquimetricError(f"{name} hold {len(array)} numbers; at least {least} are needed")
    if not np.isfinite(array).all():
        raise EquimetricError(f"{name} contain NaN or infinite numbers; leave failed runs out before comparing")
    return array


def _paired_differences(a: Values, b: Values, *, least: int) -> NDArray[np.float64]:
    first, second = _check_values(a, "a", least=least), _check_values(b, "b", least=least)
    if len(first) != len(second):
        raise EquimetricError(
            f"a has {len(first)} runs and b has {len(second)}; a paired test needs the same seeds for both, "
            "otherwise use welch_t_test"
        )
    return first - second
