"""Several comparisons at once: Holm's adjustment, and the confidence at which all their verdicts hold together."""

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.intervals import Values, check_confidence, check_values

__all__ = ["holm", "simultaneous_confidences"]


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


def simultaneous_confidences(p_values: Values, confidence: float = 0.95) -> list[float]:
    """Confidence of each of m intervals such that the verdicts read from them hold together, in the order given.

    With α = 1 − confidence, the i-th smallest p that Holm's method rejects gets 1 − α/(m − i + 1): its interval
    excludes 0 exactly because Holm rejects. All others get Bonferroni's 1 − α/m, so that claims of practical
    equality, which Holm's steps do not protect, hold together as well.
    """
    check_confidence(confidence)
    level, p = 1 - confidence, np.asarray(p_values, dtype=np.float64)
    rejected = np.asarray(holm(p)) <= level
    levels = np.full(len(p), level / len(p))
    order = np.argsort(p, kind="stable")[: int(rejected.sum())]
    levels[order] = level / np.arange(len(p), 0, -1)[: len(order)]
    return [float(1 - alpha) for alpha in levels]
