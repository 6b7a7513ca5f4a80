"""Pairs within thresholds: their counts, single pairs, and how these are counted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equimetric.evaluation.engine.arrays import Floats, Integers

__all__ = [
    "BLOCK_PAIRS",
    "AcceptedPairs",
    "ClosestPairs",
    "GroupCounts",
    "PairCounts",
    "count_within",
    "distance_of_rank",
    "first_accepting",
]

BLOCK_PAIRS = 2**18
"""Pairs counted at a time: they should stay in the cache."""


@dataclass(frozen=True)
class PairCounts:
    """Pairs within each of G thresholds: (G,) overall, (C, G) by class, (I, G) by image; fractional inside a bin."""

    positive: Floats
    negative: Floats


@dataclass(frozen=True)
class ClosestPairs:
    """Single negative pairs, closest first: their distances and the classes at both ends, each (P,)."""

    distance: Floats
    first: NDArray[np.int32]
    second: NDArray[np.int32]


@dataclass(frozen=True)
class AcceptedPairs:
    """Single negative pairs of some images, each (P,): that image, the other one, and the first threshold within."""

    first: NDArray[np.int32]
    second: NDArray[np.int32]
    threshold_index: Integers


class GroupCounts:
    """Pairs counted at the first of G thresholds that accepts them, for a range of groups: classes or images."""

    def __init__(self, groups: slice, thresholds: int) -> None:
        self.groups, self.width = groups, thresholds + 1
        self.counts = np.zeros((groups.stop - groups.start) * self.width, np.int64)

    def add(self, groups: NDArray[np.int32], threshold_index: Integers) -> None:
        """Count P pairs, each for its group (P,) at the index of its threshold (P,)."""
        inside = (groups >= self.groups.start) & (groups < self.groups.stop) & (threshold_index < self.width - 1)
        index = (groups[inside].astype(np.int64) - self.groups.start) * self.width + threshold_index[inside]
        self.counts += np.bincount(index, minlength=len(self.counts))

    def cumulative_counts(self) -> Floats:
        """Number of pairs within each threshold, (groups, G)."""
        return self.counts.reshape(-1, self.width)[:, :-1].cumsum(axis=1).astype(np.float64)


def count_within(ascending: Floats, thresholds: Floats, strictly_below: bool) -> Floats:
    """Number of ascending distances within each threshold, d ≤ t or d < t."""
    return np.searchsorted(ascending, thresholds, "left" if strictly_below else "right").astype(np.float64)


def first_accepting(ascending_thresholds: Floats, distance: Floats, strictly_below: bool) -> Integers:
    """The index of the first threshold that accepts each distance."""
    return np.searchsorted(ascending_thresholds, distance, "right" if strictly_below else "left")


def distance_of_rank(ascending: Floats, classes: NDArray[np.int32], rank: Integers) -> Floats:
    """The distance of the pair of each class of that rank, (C,), or of its last; pairs (P,) ascend in distance."""
    if not len(ascending):
        return np.zeros(len(rank))
    by_class: Floats = ascending[np.argsort(classes, kind="stable")]
    sizes = np.bincount(classes, minlength=len(rank))
    start = np.cumsum(sizes) - sizes
    index = np.clip(start + np.minimum(rank, sizes - 1), 0, len(by_class) - 1)
    return np.asarray(by_class[index])
