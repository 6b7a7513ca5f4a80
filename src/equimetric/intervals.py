"""The mean of a few values with its t-interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError

__all__ = ["MeanInterval", "mean_interval"]


@dataclass(frozen=True)
class MeanInterval:
    """A mean over n values and the half width of its interval, NaN where n = 1."""

    mean: float
    half_width: float
    n: int
    confidence: float = 0.95

    @property
    def ends(self) -> tuple[float, float]:
        """Lower and upper end."""
        return self.mean - self.half_width, self.mean + self.half_width


def mean_interval(values: Sequence[float] | NDArray[np.float64], confidence: float = 0.95) -> MeanInterval:
    """Mean ± t_{(1+confidence)/2, n−1} · s / √n, with n − 1 in the denominator of s²."""
    from scipy.special import stdtrit

    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array):
        raise EquimetricError(f"an interval needs a plain list of values, not an array of shape {array.shape}")
    if not 0 < confidence < 1:
        raise EquimetricError(f"confidence is {confidence}; give a number between 0 and 1, such as 0.95")
    n, mean = len(array), math.fsum(array) / len(array)
    if n == 1:
        return MeanInterval(mean, math.nan, 1, confidence)
    error = math.sqrt(math.fsum((array - mean) ** 2) / (n - 1) / n)
    return MeanInterval(mean, float(stdtrit(n - 1, (1 + confidence) / 2)) * error, n, confidence)
