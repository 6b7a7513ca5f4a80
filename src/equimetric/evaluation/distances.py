"""The distances of all pairs: how many positive and negative pairs a threshold accepts, overall and for every class.

A positive pair is of one class, a negative pair of two; with c at exactly one end it is a negative pair of class c.
Without a gallery the pairs are unordered and a sample is never paired with itself (by identity: duplicates are legal
pairs); with a gallery they are all (query, gallery item).

Few pairs are all kept (`EveryPair`). Otherwise (`PairHistograms`) memory is bounded and one scan is enough:

* The closest negative pairs, beyond a cut that a survey of some rows finds before the scan, are kept: small false
  accept rates are exact.
* The others are counted in 16,384 bins of equal width between the farthest surveyed pair and the cut; thresholds
  inside a bin interpolate linearly. For every class the counts at some of the edges are kept, all of them where
  consistency is measured. `possible_error` says how wrong the interpolation can be at most.
* Where consistency alone is asked for, negative pairs farther than its thresholds are one bin and are not looked at.
* Positive pairs are kept where they are few enough, else counted in bins of their own.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.binned_pairs import PairHistograms
from equimetric.evaluation.bins import survey_of
from equimetric.evaluation.comparison import Comparison
from equimetric.evaluation.every_pair import EveryPair
from equimetric.evaluation.families import Collector
from equimetric.evaluation.inputs import LabelledSets
from equimetric.evaluation.pair_counts import Closest, Counts, Floats, Integers
from equimetric.evaluation.scan import Strip, Tile, scan

__all__ = ["PairDistances", "pair_distances"]

EVERY_PAIR = 2**23
"""Up to this many pairs, all of them are kept: 16 bytes each, and 8 more once sorted."""


class Distances(Protocol):
    """What is known of the distances once all tiles have been read."""

    positives_of_class: Integers
    negatives_of_class: Integers
    positives: int
    negatives: int
    keeps_positives: bool
    exact_far: float

    def collect(self, tile: Tile) -> None:
        """Read one tile."""

    def collect_strip(self, strip: Strip) -> None:
        """Read one strip."""

    def finish(self) -> None:
        """Sort and sum what was read."""

    def accepted(self, thresholds: Floats, *, strictly: bool) -> Counts:
        """Pairs with d ≤ t, or d < t, of all classes."""

    def accepted_of_classes(self, thresholds: Floats, classes: slice, *, strictly: bool) -> Counts:
        """The same for each of some classes; thresholds ascend."""

    def negative_distance(self, rank: Integers) -> Floats:
        """The distance of the negative pair of that rank, closest first, from 0."""

    def closest_negatives(self, count: int) -> Closest:
        """The closest negative pairs, as many as wanted or kept."""

    def operating_distances(self) -> Floats:
        """All thresholds, ascending, at which the counts are known without interpolation."""

    def possible_error(self, thresholds: Floats) -> float:
        """The largest possible error of a class's false accept rate at these thresholds."""


class PairDistances(Collector):
    """The distances of all pairs of the scan, as counts of pairs within thresholds.

    Options it reads: `calibration_far` (two false accept rates) or `calibration_range` (two distances), between which
    the counts of the classes are kept finest; `closest_share`, the share of the negative pairs to keep one by one.
    """

    distances: Distances

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[re.Match[str]] = ()) -> None:
        super().__init__(sets, options, metrics)
        self.classes = len(sets.class_labels)
        self.only_interest = bool(metrics) and all(metric.string.startswith("opis") for metric in metrics)

    def prepare(self, comparison: Comparison) -> None:
        """Keep every pair if they are few; else survey where the bins should lie."""
        pairs = len(self.sets.queries) * len(self.sets.gallery_classes)
        self.is_exact = (pairs // 2 if self.sets.gallery is None else pairs) <= EVERY_PAIR
        if self.is_exact:
            self.distances = EveryPair(self.sets)
        else:
            survey = survey_of(self.sets, comparison, self.options, only_interest=self.only_interest)
            self.distances = PairHistograms(self.sets, survey)

    def collect(self, tile: Tile) -> None:
        """Read one tile."""
        self.distances.collect(tile)

    def accepts_strips(self) -> bool:
        """A distance is the same from both ends."""
        return True

    def collect_strip(self, strip: Strip) -> None:
        """Read one strip."""
        self.distances.collect_strip(strip)

    def finish(self) -> None:
        """Sort and sum what was read; a comparison needs negative pairs to be judged."""
        self.distances.finish()
        if self.positives == 0 or self.negatives == 0:
            missing = "positive" if self.positives == 0 else "negative"
            raise EquimetricError(f"there is no {missing} pair; thresholds need pairs of one class and of two classes")

    @property
    def positives(self) -> int:
        """Number of positive pairs."""
        return self.distances.positives

    @property
    def negatives(self) -> int:
        """Number of negative pairs."""
        return self.distances.negatives

    @property
    def exact_far(self) -> float:
        """The false accept rate up to which negative pairs are kept one by one: 1 where all are."""
        return self.distances.exact_far

    @property
    def positives_of_class(self) -> Integers:
        """Pairs inside each class, (C,)."""
        return self.distances.positives_of_class

    @property
    def negatives_of_class(self) -> Integers:
        """Pairs with exactly one end in the class, (C,)."""
        return self.distances.negatives_of_class

    def accepted(self, thresholds: Any, *, strictly: bool = False) -> Counts:
        """Pairs with distance ≤ t (or < t), overall, for each of G thresholds in any order."""
        return self.distances.accepted(np.asarray(thresholds, np.float64), strictly=strictly)

    def accepted_of_classes(self, thresholds: Any, classes: slice | None = None, *, strictly: bool = False) -> Counts:
        """Pairs with distance ≤ t (or < t) of all or some consecutive classes, (C, G), for G ascending thresholds."""
        some = slice(0, self.classes) if classes is None else classes
        return self.distances.accepted_of_classes(np.asarray(thresholds, np.float64), some, strictly=strictly)

    def negative_distance(self, rank: Any) -> Floats:
        """The distance of the negative pair of each rank, closest first, from 0."""
        return self.distances.negative_distance(np.asarray(rank, np.int64))

    def closest_negatives(self, count: int) -> Closest:
        """The closest negative pairs: as many as wanted, or as were kept."""
        return self.distances.closest_negatives(count)

    @cached_property
    def operating_distances(self) -> Floats:
        """All thresholds, ascending, at which the counts are known without interpolation."""
        return self.distances.operating_distances()

    def possible_error(self, thresholds: Any) -> float:
        """The largest possible error, by interpolation, of a class's false accept rate; 0 where every pair is kept."""
        return self.distances.possible_error(np.asarray(thresholds, np.float64))


def pair_distances(
    sets: LabelledSets,
    *,
    only_interest: bool = False,
    block_rows: int | None = None,
    progress: bool = False,
    **options: Any,
) -> PairDistances:
    """The distances of all pairs of a labelled set, by a scan of its own.

    With `only_interest`, thresholds beyond those of the calibration range are not told apart: that takes less time.
    """
    collector = PairDistances(sets, options)
    collector.only_interest = only_interest
    scan(Comparison.of(sets), [collector], block_rows=block_rows, progress=progress)
    return collector
