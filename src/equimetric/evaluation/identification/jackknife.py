"""How far the rates vary with the classes: each is deleted in turn, in both of its roles.

A class takes part with its probes, and with the entries of the gallery that others are mistaken for. Without it, what
its entries took from others goes to the nearest entry of another identity. The standard error is that of the jackknife,

    se² = (C − 1)/C Σ_c (θ₋c − mean)² − Σ_{a<b} δ_ab²,

where δ_ab is what FPIR loses without the acceptances between the strangers of one class and the entries of the other:
both classes have a part in them, so the sum over classes has counted them twice.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equimetric.evaluation.engine.arrays import Floats, Integers, RateInterval
from equimetric.evaluation.identification.rates import fnir_at, fpir_at
from equimetric.evaluation.identification.scores import IdentificationScores

__all__ = [
    "JackknifeEstimate",
    "LeaveOneOutRates",
    "jackknife_fnir",
    "jackknife_fpir",
    "leave_one_class_out",
    "leave_one_out_points",
]

SEARCHED_POINTS, SEARCHED_FACTOR = 257, 4.0
"""Thresholds searched without a class: this many, at FPIR from a quarter of the target to 4 times."""
MIN_CLASSES = 10
"""With fewer, a spread of classes says little."""


@dataclass(frozen=True)
class JackknifeEstimate:
    """A value with its standard error over C classes.

    largest_error  that of the jackknife itself, which is on the safe side
    """

    value: float
    error: float
    largest_error: float
    classes: int

    @classmethod
    def from_leave_one_out(cls, value: float, without: Floats, counted_twice: float = 0.0) -> "JackknifeEstimate":
        """From the values without one class each, and the part of their variance that is counted twice."""
        without = without[np.isfinite(without)]
        variance = (len(without) - 1) * float(np.var(without)) if len(without) else 0.0
        error = math.sqrt(max(variance - counted_twice, variance / 2))
        return cls(value, error, math.sqrt(variance), len(without))

    @property
    def is_known(self) -> bool:
        """Whether the rate lies between 0 and 1 and there are classes enough."""
        return 0 < self.value < 1 and self.classes >= MIN_CLASSES

    def interval(self, confidence: float) -> RateInterval | None:
        """Student interval of a rate, on the logit scale; None where it is not known."""
        from scipy.special import expit, logit

        if not self.is_known:
            return None
        half_width = self.quantile((1 + confidence) / 2) * self.error / (self.value * (1 - self.value))
        return float(expit(logit(self.value) - half_width)), float(expit(logit(self.value) + half_width))

    def upper_bound(self, confidence: float) -> float | None:
        """One-sided, of a rate over all classes such as these: value · exp(t · largest error / value)."""
        if not self.is_known:
            return None
        return min(1.0, self.value * math.exp(self.quantile(confidence) * self.largest_error / self.value))

    def quantile(self, share: float) -> float:
        """Quantile of Student's distribution with C − 1 degrees of freedom."""
        from scipy.special import stdtrit

        return float(stdtrit(self.classes - 1, share))


@dataclass(frozen=True, eq=False)
class LeaveOneOutRates:
    """FPIR and FNIR (C, T) at T thresholds without one class each; NaN where nothing is left.

    detected  (C, T) share of mated probes with an accepted entry of any identity
    """

    fpir: Floats
    fnir: Floats
    detected: Floats


def jackknife_fpir(scores: IdentificationScores, classes: int, threshold: float) -> JackknifeEstimate:
    """FPIR at a threshold."""
    thresholds = np.array([threshold])
    without = leave_one_class_out(scores, classes, thresholds).fpir[:, 0]
    accepted = scores.stranger & (scores.distance[:, 0] < threshold) & (scores.rival_distance >= threshold)
    pairs = np.sort(np.stack([scores.probe_class[accepted], scores.nearest_class[accepted]]), axis=0)
    lost = np.unique(pairs, axis=1, return_counts=True)[1] / max(1, scores.strangers)
    return JackknifeEstimate.from_leave_one_out(float(fpir_at(scores, thresholds)[0]), without, float(lost @ lost))


def jackknife_fnir(
    scores: IdentificationScores, classes: int, threshold: float, fpir: float | None = None
) -> JackknifeEstimate:
    """FNIR at a threshold; with an FPIR, at the threshold that each deletion moves to it."""
    thresholds = np.array([threshold])
    if fpir is None:
        without = leave_one_class_out(scores, classes, thresholds).fnir[:, 0]
    else:
        without = leave_one_out_points(scores, classes, fpir)[1]
    return JackknifeEstimate.from_leave_one_out(float(fnir_at(scores, thresholds)[0]), without)


def leave_one_class_out(scores: IdentificationScores, classes: int, thresholds: Floats) -> LeaveOneOutRates:
    """Both rates without each of C classes, its probes and its entries, at ascending thresholds.

    Its entries are replaced by the nearest of another identity, exactly where one entry decides; a majority of several
    keeps them.
    """
    stranger, mated = scores.stranger, ~scores.stranger
    nearest, probe_class = scores.distance[:, 0], scores.probe_class

    def count(group: Integers, distance: Floats, weight: Floats | None = None) -> Floats:
        index = np.searchsorted(thresholds, distance, "right")
        width = len(thresholds) + 1
        table = np.bincount(group * width + index, weight, minlength=classes * width)
        return np.asarray(table.reshape(classes, width)[:, :-1].cumsum(1), np.float64)

    entries = scores.nearest_class >= 0

    def accepted(probes: NDArray[np.bool_]) -> Floats:
        """Share of probes with an accepted entry; those nearest to a deleted class have their next one."""
        affected = probes & entries & (scores.nearest_class != probe_class)
        reassigned = count(scores.nearest_class[affected], scores.rival_distance[affected])
        reassigned -= count(scores.nearest_class[affected], nearest[affected])
        sizes = np.bincount(probe_class[probes], minlength=classes)
        return _leave_one_out_rates(count(probe_class[probes], nearest[probes]), reassigned, sizes)

    distance, change = scores.named_changes()
    named = count(np.repeat(probe_class[mated], distance.shape[1]), distance.ravel(), change.ravel())
    gained = np.zeros_like(named)
    if distance.shape[1] == 1:
        reassigned_named = mated & entries & (scores.nearest_class != probe_class) & scores.rival_named
        gained = count(scores.nearest_class[reassigned_named], scores.rival_distance[reassigned_named])
    return LeaveOneOutRates(
        accepted(stranger),
        1 - _leave_one_out_rates(named, gained, np.bincount(probe_class[mated], minlength=classes)),
        accepted(mated),
    )


def leave_one_out_points(scores: IdentificationScores, classes: int, fpir: float) -> tuple[Floats, Floats]:
    """(C,) thresholds of an FPIR and FNIR there, without each class; interpolated between thresholds."""
    nearest = np.sort(scores.distance[scores.stranger, 0])
    factors = np.geomspace(1 / SEARCHED_FACTOR, SEARCHED_FACTOR, SEARCHED_POINTS)
    ranks = np.clip(np.append(0, fpir * len(nearest) * factors), 0, len(nearest) - 1).astype(np.int64)
    thresholds = np.unique(nearest[ranks])
    deleted = leave_one_class_out(scores, classes, thresholds)
    valid = np.isfinite(deleted.fpir).all(1) & np.isfinite(deleted.fnir).all(1)
    points = np.full((2, classes), np.nan)
    for class_index in np.flatnonzero(valid):
        rates = deleted.fpir[class_index]
        points[:, class_index] = np.interp(fpir, rates, thresholds), np.interp(fpir, rates, deleted.fnir[class_index])
    return points[0], points[1]


def _leave_one_out_rates(counts: Floats, others: Floats, sizes: Integers) -> Floats:
    """(C, T) rates of all other classes: their counts (C, T) and what each class passes on, by their sizes (C,)."""
    remaining = sizes.sum() - sizes
    return np.where(
        remaining[:, None] > 0, (counts.sum(0) - counts + others) / np.maximum(1, remaining)[:, None], np.nan
    )
