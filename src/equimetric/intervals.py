"""The t-interval of a mean, checks of the numbers that statistics start from, and Student's quantile."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError

__all__ = ["Interval", "Values", "check_confidence", "check_values", "t_interval", "t_quantile"]

Values: TypeAlias = Sequence[float] | NDArray[np.floating]


def check_values(values: Values, name: str, *, min_length: int) -> NDArray[np.float64]:
    """A plain list of at least `min_length` finite numbers as an array."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise EquimetricError(f"{name} have shape {array.shape}; give a plain list of numbers, one per run")
    if len(array) < min_length:
        raise EquimetricError(f"{name} hold {len(array)} numbers; at least {min_length} are needed")
    if not np.isfinite(array).all():
        raise EquimetricError(f"{name} contain NaN or infinite numbers; leave failed runs out before comparing")
    return array


def check_confidence(confidence: float) -> None:
    """Raise an error unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise EquimetricError(f"confidence is {confidence}; it must lie between 0 and 1, such as 0.95")


def t_quantile(confidence: float, degrees: float) -> float:
    """Student's t at the end of a two-sided interval of this confidence."""
    from scipy.special import stdtrit

    check_confidence(confidence)
    return float(stdtrit(degrees, (1 + confidence) / 2))


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


def t_interval(values: Values, confidence: float = 0.95) -> Interval:
    """Mean ± t_{(1+confidence)/2, n−1} · s / √n, with s of n − 1 in the denominator; NaN half width for n = 1."""
    array = check_values(values, "values", min_length=1)
    n = len(array)
    if n == 1:
        check_confidence(confidence)
        return Interval(float(array[0]), math.nan, 1, math.nan, confidence)
    deviation = float(array.std(ddof=1))
    half_width = t_quantile(confidence, n - 1) * deviation / math.sqrt(n)
    return Interval(float(array.mean()), half_width, n, deviation, confidence)
