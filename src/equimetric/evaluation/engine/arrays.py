"""Array types and row ranges that the whole room uses."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Integers", "slices"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def slices(total: int, step: int) -> list[slice]:
    """Consecutive slices of at most `step` that cover range(total)."""
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]
