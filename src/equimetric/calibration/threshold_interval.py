"""How far the threshold of a false accept rate varies with the classes: percentiles under resampling."""

import math
from collections.abc import Callable

import numpy as np

from equimetric.evaluation.engine.arrays import Integers
from equimetric.evaluation.engine.pair_counts import ClosestPairs
from equimetric.evaluation.engine.pair_distances import PairDistances
from equimetric.seeding import derive_seed

__all__ = ["SEARCHED_FACTOR", "threshold_interval"]

SEARCHED_FACTOR, LEAST_SEARCHED_FACTOR = 4.0, 1.5
"""Resampled thresholds are searched up to 4 times the target false accept rate; 1.5 times suffices for many classes."""
SEARCHED_POINTS = 257


def threshold_interval(
    distances: PairDistances, far: float, resamples: int, confidence: float, seed: int
) -> tuple[tuple[float, float], str]:
    """Percentiles of the threshold under resampling of classes with replacement, and what was resampled.

    A pair of classes a and b that are drawn w_a and w_b times counts w_a·w_b times. Where too few of the closest pairs
    are kept singly for that, the first order w_a + w_b − 1 replaces it: then only the number of negative pairs of each
    class that each of some thresholds accepts is needed.
    """
    closest = distances.closest_negatives(math.ceil(SEARCHED_FACTOR * far * distances.negatives))
    if len(closest.distance) >= min(distances.negatives, LEAST_SEARCHED_FACTOR * far * distances.negatives):
        threshold_of, resampled = _from_pairs(distances, closest, far), "pairs"
    else:
        threshold_of, resampled = _from_class_counts(distances, far), "class counts"
    generator = np.random.default_rng(derive_seed(seed, "resampled classes"))
    classes = distances.classes
    draws = (np.bincount(generator.integers(0, classes, classes), minlength=classes) for _ in range(resamples))
    found = [threshold_of(weights) for weights in draws if np.count_nonzero(weights) > 1]
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return (float(low), float(high)), resampled


def _from_pairs(distances: PairDistances, closest: ClosestPairs, far: float) -> Callable[[Integers], float]:
    sizes = np.bincount(distances.sets.query_classes.cpu().numpy(), minlength=distances.classes)

    def threshold(weights: Integers) -> float:
        samples = weights * sizes
        negatives = (samples.sum() ** 2 - (samples**2).sum()) / 2
        counted = (weights[closest.first] * weights[closest.second]).cumsum()
        place = np.searchsorted(counted, math.floor(far * negatives + 1e-9), "right")
        return float(closest.distance[min(place, len(counted) - 1)])

    return threshold


def _from_class_counts(distances: PairDistances, far: float) -> Callable[[Integers], float]:
    factors = np.geomspace(1 / SEARCHED_FACTOR, SEARCHED_FACTOR, SEARCHED_POINTS)
    ranks = np.minimum(np.floor(far * distances.negatives * factors), distances.negatives - 1)
    thresholds = np.unique(distances.negative_distance(ranks))
    accepted = distances.accepted_by_class(thresholds, strict=True).negative
    overall = distances.accepted(thresholds, strict=True).negative

    def threshold(weights: Integers) -> float:
        negatives = weights @ distances.negatives_by_class - distances.negatives
        rates = np.maximum.accumulate((weights @ accepted - overall) / negatives)
        return float(thresholds[max(0, int(np.searchsorted(rates, far, "right")) - 1)])

    return threshold
