"""Pairs within thresholds: what is known of them, and how single pairs are counted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equimetric.evaluation.engine.arrays import Floats, Integers

__all__ = ["BLOCK_PAIRS", "ClassCounts", "ClosestPairs", "PairCounts", "count_within", "first_accepting"]

BLOCK_PAIRS = 2**18
"""Pairs counted at a time: they should stay in the cache."""


@dataclass(frozen=True)
class PairCounts:
    """Pairs within each of G thresholds, (G,) overall or (C, G) by class; fractional where a bin is interpolated."""

    positive: Floats
    negative: Floats


@dataclass(frozen=True)
class ClosestPairs:
    """Single negative pairs, closest first: their distances and the classes at both ends, each (P,)."""

    distance: Floats
    first: NDArray[np.int32]
    second: NDArray[np.int32]


class ClassCounts:
    """Pairs counted at the first of G thresholds that accepts them, for a range of classes."""

    def __init__(self, classes: slice, thresholds: int) -> None:
        self.classes, self.width = classes, thresholds + 1
        self.counts = np.zeros((classes.stop - classes.start) * self.width, np.int64)

    def add(self, classes: NDArray[np.int32], place: Integers) -> None:
        """Count P pairs, each for its class (P,) at the index of its threshold (P,)."""
        inside = (classes >= self.classes.start) & (classes < self.classes.stop) & (place < self.width - 1)
        index = (classes[inside].astype(np.int64) - self.classes.start) * self.width + place[inside]
        self.counts += np.bincount(index, minlength=len(self.counts))

    def accepted(self) -> Floats:
        """Pairs within each threshold, (C, G)."""
        return self.counts.reshape(-1, self.width)[:, :-1].cumsum(axis=1).astype(np.float64)


def count_within(ascending: Floats, thresholds: Floats, strict: bool) -> Floats:
    """How many of the ascending distances are within each threshold, d ≤ t or d < t."""
    return np.searchsorted(ascending, thresholds, "left" if strict else "right").astype(np.float64)


def first_accepting(ascending_thresholds: Floats, distance: Floats, strict: bool) -> Integers:
    """The index of the first threshold that accepts each distance."""
    return np.searchsorted(ascending_thresholds, distance, "right" if strict else "left")
