"""How far a threshold varies with the classes: percentiles under resampling."""

import math
from collections.abc import Callable

import numpy as np

from equimetric.calibration.targets import Costs, FalseAccepts, FalseRejects, Target
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.pair_counts import ClosestPairs
from equimetric.evaluation.engine.pair_distances import PairDistances
from equimetric.seeding import derive_seed

__all__ = ["searched_share", "threshold_interval"]

SEARCHED_FACTOR, MIN_SEARCHED_FACTOR = 4.0, 1.5
"""Resampled thresholds are searched up to 4 times the target false accept rate; 1.5 times suffices for many classes."""
SEARCHED_POINTS = 257

ResampledThreshold = Callable[[Integers], float]
"""The threshold where class c is drawn weights[c] times."""


def searched_share(target: Target) -> float:
    """The share of the negative pairs that is best kept singly, for the interval to be from pairs."""
    return SEARCHED_FACTOR * target.far if isinstance(target, FalseAccepts) else 0.0


def threshold_interval(
    distances: PairDistances, target: Target, threshold: float, resamples: int, confidence: float, seed: int
) -> tuple[tuple[float, float], str]:
    """Percentiles of the threshold under resampling of classes with replacement, and what was resampled.

    A pair of classes a and b that are drawn w_a and w_b times counts w_a·w_b times. Where too few of the closest pairs
    are kept singly for that, and for other targets than a false accept rate, the first order w_a + w_b − 1 replaces it:
    then only the number of pairs of each class that each of some thresholds accepts is needed.
    """
    threshold_of, resampled = _resampled_threshold(distances, target, threshold)
    generator = np.random.default_rng(derive_seed(seed, "resampled classes"))
    classes = distances.classes
    draws = (np.bincount(generator.integers(0, classes, classes), minlength=classes) for _ in range(resamples))
    thresholds = [threshold_of(weights) for weights in draws if np.count_nonzero(weights) > 1]
    low, high = np.quantile(thresholds, [(1 - confidence) / 2, (1 + confidence) / 2])
    return (float(low), float(high)), resampled


def _resampled_threshold(distances: PairDistances, target: Target, threshold: float) -> tuple[ResampledThreshold, str]:
    if not isinstance(target, FalseAccepts):
        assert isinstance(target, FalseRejects | Costs)
        return _from_both_counts(distances, target, threshold), "class counts"
    far = target.far
    closest = distances.closest_negatives(math.ceil(SEARCHED_FACTOR * far * distances.negatives))
    if len(closest.distance) >= min(distances.negatives, MIN_SEARCHED_FACTOR * far * distances.negatives):
        return _from_pairs(distances, closest, far), "pairs"
    return _from_class_counts(distances, far), "class counts"


def _from_pairs(distances: PairDistances, closest: ClosestPairs, far: float) -> ResampledThreshold:
    sizes = np.bincount(distances.sets.query_classes.cpu().numpy(), minlength=distances.classes)

    def threshold(weights: Integers) -> float:
        samples = weights * sizes
        negatives = (samples.sum() ** 2 - (samples**2).sum()) / 2
        cumulative_counts = (weights[closest.first] * weights[closest.second]).cumsum()
        index = np.searchsorted(cumulative_counts, math.floor(far * negatives + 1e-9), "right")
        return float(closest.distance[min(index, len(cumulative_counts) - 1)])

    return threshold


def _from_class_counts(distances: PairDistances, far: float) -> ResampledThreshold:
    factors = np.geomspace(1 / SEARCHED_FACTOR, SEARCHED_FACTOR, SEARCHED_POINTS)
    ranks = np.minimum(np.floor(far * distances.negatives * factors), distances.negatives - 1)
    thresholds = np.unique(distances.negative_distance(ranks))
    accepted = distances.count_accepted_by_class(thresholds, strictly_below=True).negative
    overall = distances.count_accepted(thresholds, strictly_below=True).negative

    def threshold(weights: Integers) -> float:
        negatives = weights @ distances.negatives_by_class - distances.negatives
        rates = np.maximum.accumulate((weights @ accepted - overall) / negatives)
        return float(thresholds[max(0, int(np.searchsorted(rates, far, "right")) - 1)])

    return threshold


def _from_both_counts(
    distances: PairDistances, target: FalseRejects | Costs, fitted_threshold: float
) -> ResampledThreshold:
    thresholds = _thresholds_around(distances, fitted_threshold)
    accepted = distances.count_accepted_by_class(thresholds, strictly_below=True)
    overall = distances.count_accepted(thresholds, strictly_below=True).negative

    def threshold(weights: Integers) -> float:
        positives = max(1, int(weights @ distances.positives_by_class))
        frr = 1 - weights @ accepted.positive / positives
        if isinstance(target, FalseRejects):
            enough = frr <= target.frr + 1e-12
            return float(thresholds[int(np.argmax(enough)) if enough.any() else -1])
        negatives = weights @ distances.negatives_by_class - distances.negatives
        far = np.clip((weights @ accepted.negative - overall) / np.maximum(negatives, 1), 0, 1)
        return float(thresholds[int(np.argmin(target.expected(far, frr)))])

    return threshold


def _thresholds_around(distances: PairDistances, threshold: float) -> Floats:
    """Ascending thresholds with both rates from a quarter to four times those at the given threshold."""
    operating = distances.operating_distances
    operating = operating[np.unique(np.linspace(0, len(operating) - 1, 2**16).astype(np.int64))]
    counts = distances.count_accepted(operating)
    far, frr = counts.negative / distances.negatives, 1 - counts.positive / distances.positives
    at_threshold = distances.count_accepted(threshold, strictly_below=True)
    shares = np.geomspace(1 / SEARCHED_FACTOR, SEARCHED_FACTOR, SEARCHED_POINTS // 2)
    by_far = np.searchsorted(far, shares * max(float(at_threshold.negative), 1.0) / distances.negatives)
    rejected = max(distances.positives - float(at_threshold.positive), 1.0)
    by_frr = len(frr) - np.searchsorted(frr[::-1], shares * rejected / distances.positives, "right")
    indices = np.unique(np.clip(np.concatenate([by_far, by_frr]), 0, len(operating) - 1))
    return np.unique(np.append(np.nextafter(operating[indices], np.inf), threshold))
