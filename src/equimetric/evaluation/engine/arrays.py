"""Array types that the whole room uses."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Integers", "RateInterval"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
RateInterval = tuple[float, float]
"""Lower and upper end of a confidence interval."""
