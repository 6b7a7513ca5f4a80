"""Rates of listed pairs, each of which counts by a weight: how often it is drawn."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.metrics.roc import interpolate_equal_error

__all__ = ["TrialCurve", "weighted_rates"]


class TrialCurve:
    """The ROC curve of weighted trials; points after each distinct distance, and (0, 0) before the first."""

    def __init__(self, distance: Floats, same: NDArray[np.bool_]) -> None:
        self.order = np.argsort(distance, kind="stable")
        self.distance, self.same = distance[self.order], same[self.order]
        self.last = np.append(np.flatnonzero(np.diff(self.distance) > 0), len(distance) - 1)

    def rates(self, weights: Floats) -> tuple[Floats, Floats]:
        """FAR and TAR (T + 1,) where every trial counts by its weight (P,)."""
        weights = weights[self.order]
        accepted = ((np.where(kind, weights, 0.0)).cumsum() for kind in (~self.same, self.same))
        far, tar = (np.append(0.0, counts[self.last]) / counts[-1] for counts in accepted)
        return far, tar

    def scores(self, weights: Floats, fars: Iterable[float]) -> list[float]:
        """AUC, EER, and TAR at each of these FAR."""
        far, tar = self.rates(weights)
        area = float((np.diff(far) * (tar[1:] + tar[:-1])).sum() / 2)
        tars = (float(tar[_index_at_far(far, rate)]) for rate in fars)
        return [area, float(interpolate_equal_error(far[None], tar[None])[0]), *tars]

    def threshold_at_far(self, far: float) -> float:
        """The largest threshold whose FAR is at most this: the first distance that would exceed it."""
        index = _index_at_far(self.rates(np.ones(len(self.same)))[0], far)
        return float(self.distance[self.last[index]]) if index < len(self.last) else math.inf


def _index_at_far(far: Floats, target_far: float) -> int:
    """The last point whose FAR is at most this."""
    return int(np.searchsorted(far, target_far + 1e-12, "right")) - 1


def weighted_rates(accepted: NDArray[np.bool_], same: NDArray[np.bool_], weights: Floats) -> tuple[float, float]:
    """(FAR, FRR) of weighted trials."""
    negatives, positives = weights[~same], weights[same]
    return (
        float(negatives @ accepted[~same] / negatives.sum()),
        float(positives @ ~accepted[same] / positives.sum()),
    )
