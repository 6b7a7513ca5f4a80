"""The t-interval of a mean over seeds."""

import math
from dataclasses import dataclass

from equimetric.studies.statistics.values import Values, check_confidence, check_values, t_quantile

__all__ = ["Interval", "t_interval"]


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
    array = check_values(values, "values", least=1)
    n = len(array)
    if n == 1:
        check_confidence(confidence)
        return Interval(float(array[0]), math.nan, 1, math.nan, confidence)
    deviation = float(array.std(ddof=1))
    half_width = t_quantile(confidence, n - 1) * deviation / math.sqrt(n)
    return Interval(float(array.mean()), half_width, n, deviation, confidence)
