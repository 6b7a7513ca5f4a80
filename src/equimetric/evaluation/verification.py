"""Verification: are two samples of one class? Accepted if their distance is within a threshold.

FAR(t) = accepted negatives / negatives, FRR(t) = rejected positives / positives, TAR = 1 − FRR; every metric is a
pure function of the pair distances.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.evaluation.distances import PairDistances
from equimetric.evaluation.families import Evidence, MetricFamily, Score

__all__ = [
    "FAMILIES",
    "ClassRates",
    "OperatingPoint",
    "Roc",
    "area_under_roc",
    "class_rates",
    "equal_error_rate",
    "rates",
    "roc",
    "tar_at_far",
]

Floats = NDArray[np.float64]
PLOTTED_POINTS = 512
CLASS_POINTS = 64
"""Thresholds of the curves of single classes, along each of the two kinds of pairs."""
PLOTTED_BINS = 100


@dataclass(frozen=True)
class Roc:
    """FAR and TAR at ascending thresholds, each (T,)."""

    threshold: Floats
    far: Floats
    tar: Floats


@dataclass(frozen=True)
class OperatingPoint:
    """The largest TAR whose FAR does not exceed the wanted one: pairs closer than `threshold` are accepted.

    far  the actual false accept rate, at most the wanted one
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
    return _roc_at(distances, distances.operating_distances)


def area_under_roc(distances: PairDistances) -> float:
    """AUC = P(d⁺ < d⁻) + ½ P(d⁺ = d⁻): a negative pair is farther than a positive one."""
    threshold = distances.operating_distances
    within, before = distances.accepted(threshold), distances.accepted(threshold, strictly=True).negative
    positive = np.diff(within.positive, prepend=0.0)
    # Negatives closer than a positive pair: those before it and half of those that tie with it; if positives were
    # counted in bins, they lie evenly between two thresholds.
    known = before if distances.distances.keeps_positives else np.append(0.0, within.negative[:-1])
    closer = (within.negative + known) / 2
    return 1 - float(positive @ closer) / (distances.positives * distances.negatives)


def equal_error_rate(distances: PairDistances) -> tuple[float, float]:
    """(EER, threshold): where FAR = FRR, linear between the last operating point with FAR < FRR and the next.

    The operating points are those of all distinct distances, preceded by (FAR, FRR) = (0, 1).
    """
    threshold = distances.operating_distances

    def errors(place: int) -> tuple[float, float]:
        far, frr = rates(distances, float(threshold[place]))
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


def tar_at_far(distances: PairDistances, far: float) -> OperatingPoint:
    """Accept what is closer than the (k+1)-th closest negative pair, k = ⌊far · negatives⌋; not interpolated."""
    if not 0 <= far <= 1:
        raise EquimetricError(f"the false accept rate {far} is not between 0 and 1")
    accepted = math.floor(far * distances.negatives + 1e-9)
    threshold = math.inf if accepted >= distances.negatives else float(distances.negative_distance(accepted))
    counts = distances.accepted(threshold, strictly=True)
    return OperatingPoint(
        threshold, float(counts.negative) / distances.negatives, float(counts.positive) / distances.positives
    )


def rates(distances: PairDistances, threshold: float, *, strictly: bool = False) -> tuple[float, float]:
    """(FAR, FRR) of all pairs, accepted at d ≤ t (or d < t)."""
    counts = distances.accepted(threshold, strictly=strictly)
    far = float(counts.negative) / distances.negatives
    return far, 1 - float(counts.positive) / distances.positives


def class_rates(distances: PairDistances, threshold: float, *, strictly: bool = False) -> ClassRates:
    """FAR and FRR of every class, accepted at d ≤ t (or d < t)."""
    counts = distances.accepted_of_classes([threshold], strictly=strictly)
    with np.errstate(invalid="ignore"):
        far = counts.negative[:, 0] / distances.negatives_of_class
        frr = 1 - counts.positive[:, 0] / distances.positives_of_class
    return ClassRates(far, frr)


def _roc_at(distances: PairDistances, threshold: Floats) -> Roc:
    counts = distances.accepted(threshold)
    return Roc(threshold, counts.negative / distances.negatives, counts.positive / distances.positives)


def _curves(distances: PairDistances) -> dict[str, Any]:
    """A ROC curve and two histograms that are short enough to be plotted, exact at their points."""
    shares = np.append(0.0, np.geomspace(1 / distances.negatives, 1, PLOTTED_POINTS // 2))
    of_negatives = distances.negative_distance((shares * (distances.negatives - 1)).astype(np.int64))
    farthest = distances.operating_distances
    evenly = farthest[np.linspace(0, len(farthest) - 1, PLOTTED_POINTS // 2).astype(np.int64)]
    curve = _roc_at(distances, np.unique(np.concatenate([of_negatives, evenly])))
    edges = np.linspace(farthest[0], farthest[-1], PLOTTED_BINS + 1)
    counts = distances.accepted(edges)
    positive, negative = (np.diff(np.append(0.0, count[1:])) for count in (counts.positive, counts.negative))
    return {
        "roc": {"far": curve.far, "tar": curve.tar, "threshold": curve.threshold},
        "distances": {"edges": edges, "positive": positive, "negative": negative},
    }


def _curves_of_classes(distances: PairDistances) -> dict[str, Any]:
    """Accepted pairs of every class at thresholds that lie along both curves; (C, T), and (C,) of all its pairs."""
    shares = np.linspace(0, 1, CLASS_POINTS)
    negative = distances.negative_distance((shares * (distances.negatives - 1)).astype(np.int64))
    farthest = distances.operating_distances
    evenly = farthest[np.linspace(0, len(farthest) - 1, CLASS_POINTS).astype(np.int64)]
    counts = distances.accepted_of_classes(np.unique(np.concatenate([negative, evenly])))
    return {
        "class_roc": {
            "positive": counts.positive,
            "negative": counts.negative,
            "positives": distances.positives_of_class.astype(np.float64),
            "negatives": distances.negatives_of_class.astype(np.float64),
        }
    }


def _score_auc(_: re.Match[str], evidence: Evidence) -> Score:
    distances = evidence[PairDistances]
    return Score(area_under_roc(distances), details={**_curves(distances), **_curves_of_classes(distances)})


def _score_eer(_: re.Match[str], evidence: Evidence) -> Score:
    distances = evidence[PairDistances]
    error, threshold = equal_error_rate(distances)
    details = {**_curves(distances), **_curves_of_classes(distances), "eer_threshold": threshold}
    return Score(error, details=details)


def _score_tar(match: re.Match[str], evidence: Evidence) -> Score:
    distances = evidence[PairDistances]
    point = tar_at_far(distances, float(match["far"]))
    per_class = torch.from_numpy(1 - class_rates(distances, point.threshold, strictly=True).frr)
    chosen = {
        f"{match[0]} threshold": point.threshold,
        f"{match[0]} actual far": point.far,
        "negative pairs kept one by one up to far": distances.exact_far,
    }
    return Score(point.tar, per_class=per_class, details={**_curves(distances), **chosen})


def _score_rate(which: int) -> Callable[[re.Match[str], Evidence], Score]:
    def score(match: re.Match[str], evidence: Evidence) -> Score:
        distances, threshold = evidence[PairDistances], float(match["threshold"])
        of_classes = class_rates(distances, threshold)
        per_class = torch.from_numpy((of_classes.far, of_classes.frr)[which])
        details = {"class_negatives": distances.negatives_of_class.astype(np.float64)} if which == 0 else {}
        return Score(rates(distances, threshold)[which], per_class=per_class, details=details)

    return score


NUMBER = r"[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?"
FAMILIES: tuple[MetricFamily, ...] = (
    MetricFamily("auc", ("auc",), (PairDistances,), _score_auc),
    MetricFamily("eer", ("eer",), (PairDistances,), _score_eer),
    MetricFamily(rf"tar@far=(?P<far>{NUMBER})", ("tar@far=1e-3",), (PairDistances,), _score_tar),
    MetricFamily(rf"far@distance=(?P<threshold>{NUMBER})", ("far@distance=0.9",), (PairDistances,), _score_rate(0)),
    MetricFamily(rf"frr@distance=(?P<threshold>{NUMBER})", ("frr@distance=0.9",), (PairDistances,), _score_rate(1)),
)
