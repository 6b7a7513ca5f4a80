"""Several tests at once: Holm's adjustment of their p-values."""

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.intervals import Values, check_values

__all__ = ["holm"]


def holm(p_values: Values) -> list[float]:
    """Holm's step-down adjustment for m comparisons, in the order given.

    With p_(1) ≤ … ≤ p_(m): adjusted p_(i) = max_{j≤i} min(1, (m − j + 1) · p_(j)).
    """
    p = check_values(p_values, "p_values", min_length=1)
    if ((p < 0) | (p > 1)).any():
        raise EquimetricError("p_values must lie between 0 and 1")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(len(p), 0, -1) * p[order]))
    return [float(value) for value in adjusted]
