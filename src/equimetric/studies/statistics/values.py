"""Checks of the numbers that statistics start from, and Student's quantile."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError

__all__ = ["Values", "check_confidence", "check_values", "t_quantile"]

Values: TypeAlias = Sequence[float] | NDArray[np.floating]


def check_values(values: Values, name: str, *, least: int) -> NDArray[np.float64]:
    """A plain list of at least `least` finite numbers as an array."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise EquimetricError(f"{name} have shape {array.shape}; give a plain list of numbers, one per run")
    if len(array) < least:
        raise EquimetricError(f"{name} hold {len(array)} numbers; at least {least} are needed")
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
