"""Error rates of pair verification: two samples are accepted as one class if their distance is within a threshold.

FAR(t) = accepted negatives / negatives, FRR(t) = rejected positives / positives, TAR = 1 − FRR. All are pure functions
of the pair distances.
"""

import math
from dataclasses import dataclass

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.pair_distances import PairDistances
from equimetric.evaluation.evidence import Detail

__all__ = [
    "MIN_ERRORS",
    "ClassRates",
    "OperatingPoint",
    "Roc",
    "area_under_roc",
    "check_rate",
    "class_rates",
    "equal_error_rate",
    "far_and_frr",
    "interpolate_equal_error",
    "roc",
    "roc_at",
    "tar_at_far",
    "tar_without_each_class",
]

MIN_ERRORS = 10
"""Expected errors for a rate to be estimated: 10 ± √10 is a third either way."""

THRESHOLDS_NEARBY = 1024
"""Thresholds around one of all classes at which the accepted pairs are counted without each class."""


@dataclass(frozen=True)
class Roc(Detail):
    """FAR and TAR at ascending thresholds, each (T,)."""

    key = "roc"

    threshold: Floats
    far: Floats
    tar: Floats


@dataclass(frozen=True)
class OperatingPoint:
    """The largest TAR whose FAR does not exceed the target: pairs closer than `threshold` are accepted.

    far  the actual false accept rate, at most the target
    """

    threshold: float
    far: float
    tar: float


@dataclass(frozen=True)
class ClassRates:
    """FAR and FRR of every class at one threshold, (C,); NaN for a class without such pairs.

    Positives of a class are the pairs inside it, negatives those with exactly one end in it.
    """

    far: Floats
    frr: Floats


def roc(distances: PairDistances) -> Roc:
    """The operating points (d ≤ t) at all distinct distances; where bins were counted, at all their edges."""
    return roc_at(distances, distances.operating_distances)


def area_under_roc(distances: PairDistances) -> float:
    """AUC = P(d⁺ < d⁻) + ½ P(d⁺ = d⁻): a negative pair is farther than a positive one."""
    threshold = distances.operating_distances
    within, before = (
        distances.count_accepted(threshold),
        distances.count_accepted(threshold, strictly_below=True).negative,
    )
    positive = np.diff(within.positive, prepend=0.0)
    # Negatives closer than a positive pair: those before it and half of those that tie with it; if positives were
    # counted in bins, they lie evenly between two thresholds.
    previous = before if distances.distances.keeps_positives else np.append(0.0, within.negative[:-1])
    closer = (within.negative + previous) / 2
    return 1 - float(positive @ closer) / (distances.positives * distances.negatives)


def equal_error_rate(distances: PairDistances) -> tuple[float, float]:
    """(EER, threshold): where FAR = FRR, linear between the last operating point with FAR < FRR and the next.

    The operating points are those of all distinct distances, preceded by (FAR, FRR) = (0, 1).
    """
    threshold = distances.operating_distances

    def errors(index: int) -> tuple[float, float]:
        far, frr = far_and_frr(distances, float(threshold[index]))
        return far, frr

    first, last = 0, len(threshold) - 1
    while first < last:
        middle = (first + last) // 2
        far, frr = errors(middle)
        first, last = (first, middle) if far >= frr else (middle + 1, last)
    far, frr = errors(first)
    far_before, frr_before = errors(first - 1) if first else (0.0, 1.0)
    gap, gap_before = far - frr, frr_before - far_before
    share = gap_before / (gap_before + gap)
    return far_before + share * (far - far_before), float(threshold[first])


def interpolate_equal_error(far: Floats, tar: Floats) -> Floats:
    """(B,) where FAR = FRR on curves of points (B, T), linear between the last point below and the first above."""
    excess = far + tar - 1
    above = np.argmax(excess >= 0, axis=1)
    rows, below = np.arange(len(far)), np.maximum(above - 1, 0)
    step = excess[rows, above] - excess[rows, below]
    share = -excess[rows, below] / np.where(step > 0, step, 1)
    return np.asarray(far[rows, below] + share * (far[rows, above] - far[rows, below]))


def tar_at_far(distances: PairDistances, far: float) -> OperatingPoint:
    """Accept what is closer than the (k+1)-th closest negative pair, k = ⌊far · negatives⌋; not interpolated."""
    check_rate(far)
    accepted = math.floor(far * distances.negatives + 1e-9)
    threshold = math.inf if accepted >= distances.negatives else float(distances.negative_distance(accepted))
    counts = distances.count_accepted(threshold, strictly_below=True)
    return OperatingPoint(
        threshold, float(counts.negative) / distances.negatives, float(counts.positive) / distances.positives
    )


def tar_without_each_class(distances: PairDistances, far: float) -> Floats:
    """(C,) TAR at a FAR of the other classes where each class is left out, threshold and all.

    Without class c, whose negative pairs have exactly one end in it:  FAR(t) = (n(t) − n_c(t)) / (n − n_c),
    TAR(t) = (p(t) − p_c(t)) / (p − p_c). Of very many pairs only every few are thresholds to choose from.
    """
    check_rate(far)
    expected = far * distances.negatives
    ranks = np.linspace(expected / 4, 4 * expected + 1, THRESHOLDS_NEARBY).clip(0, distances.negatives - 1)
    thresholds = distances.negative_distance(np.unique(ranks.astype(np.int64)))
    counts = distances.count_accepted(thresholds, strictly_below=True)
    of_class = distances.count_accepted_by_class(thresholds, strictly_below=True)
    other_negatives = np.maximum(distances.negatives - distances.negatives_by_class, 1)[:, None]
    other_positives = np.maximum(distances.positives - distances.positives_by_class, 1)[:, None]
    class_far = (counts.negative - of_class.negative) / other_negatives
    class_tar = (counts.positive - of_class.positive) / other_positives
    last_within = np.maximum((class_far <= far + 1e-12).sum(axis=1) - 1, 0)
    return np.asarray(class_tar[np.arange(len(class_tar)), last_within])


def far_and_frr(distances: PairDistances, threshold: float, *, strictly_below: bool = False) -> tuple[float, float]:
    """(FAR, FRR) of all pairs, accepted at d ≤ t (or d < t)."""
    counts = distances.count_accepted(threshold, strictly_below=strictly_below)
    far = float(counts.negative) / distances.negatives
    return far, 1 - float(counts.positive) / distances.positives


def class_rates(distances: PairDistances, threshold: float, *, strictly_below: bool = False) -> ClassRates:
    """FAR and FRR of every class, accepted at d ≤ t (or d < t)."""
    counts = distances.count_accepted_by_class([threshold], strictly_below=strictly_below)
    with np.errstate(invalid="ignore"):
        far = counts.negative[:, 0] / distances.negatives_by_class
        frr = 1 - counts.positive[:, 0] / distances.positives_by_class
    return ClassRates(far, frr)


def check_rate(far: float) -> float:
    """The rate itself; an error where it is not between 0 and 1."""
    if not 0 <= far <= 1:
        raise EquimetricError(f"the false accept rate {far} is not between 0 and 1")
    return far


def roc_at(distances: PairDistances, threshold: Floats) -> Roc:
    """The operating points (d ≤ t) at these ascending thresholds."""
    counts = distances.count_accepted(threshold)
    return Roc(threshold, counts.negative / distances.negatives, counts.positive / distances.positives)
