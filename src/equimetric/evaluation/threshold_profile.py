"""What every threshold does, to all pairs and to the pairs of each class: the data behind a threshold explorer.

Pairs within a distance t are accepted. With P(t) and N(t) the accepted positive and negative pairs of P and N,

    FAR(t) = N(t) / N        FRR(t) = 1 − P(t) / P

overall, and the same for each class by its own pairs. The counts are kept, not the rates: they are exact, and small.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, prepare_sets
from equimetric.evaluation.engine.pair_distances import PairDistances, pair_distances
from equimetric.evaluation.engine.sets import GeometryName
from equimetric.evaluation.engine.survey import DEFAULT_FAR
from equimetric.evaluation.metrics.calibration_range import range_ends, range_thresholds
from equimetric.evaluation.metrics.utility_curves import Consistency, utility

__all__ = ["ThresholdProfile", "count_pairs", "profile_distances", "threshold_profile"]

CALIBRATION_POINTS, OUTER_POINTS = 101, 30
"""Thresholds within the calibration range, those of OPIS, and on either side of it."""
MIN_TAR, MAX_FAR = 0.01, 0.5
"""Where the thresholds begin, and where they end."""


@dataclass(frozen=True, repr=False, eq=False)
class ThresholdProfile:
    """Accepted pairs at ascending thresholds.

    thresholds       (G,) distances; negated scores where a cohort normalises them
    calibration      the thresholds [first, last) that span the calibration range, evenly spaced
    positive, negative              (G,) accepted pairs of all classes
    positives, negatives            all pairs
    numbers          (T,) the classes with positive and negative pairs, by label
    class_positive, class_negative  (T, G) accepted pairs of each class
    class_positives, class_negatives  (T,) all pairs of each
    scored           whether thresholds are negated scores
    possible_error   bound on the error of a share of negative pairs where pairs are counted in bins; else 0
    """

    thresholds: Floats
    calibration: tuple[int, int]
    positive: Integers
    negative: Integers
    positives: int
    negatives: int
    numbers: NDArray[Any]
    class_positive: Integers
    class_negative: Integers
    class_positives: Integers
    class_negatives: Integers
    scored: bool = False
    possible_error: float = 0.0

    @property
    def far(self) -> Floats:
        """(G,) the false accept rate of all pairs."""
        return self.negative / self.negatives

    @property
    def frr(self) -> Floats:
        """(G,) the false reject rate of all pairs."""
        return 1 - self.positive / self.positives

    @property
    def class_far(self) -> Floats:
        """(T, G) the false accept rate of each class."""
        return np.asarray(self.class_negative / self.class_negatives[:, None])

    @property
    def class_frr(self) -> Floats:
        """(T, G) the false reject rate of each class."""
        return np.asarray(1 - self.class_positive / self.class_positives[:, None])

    @property
    def utility(self) -> Floats:
        """(T, G) the utility of each class: the harmonic mean of 1 − FAR and 1 − FRR."""
        return utility(self.class_positive / self.class_positives[:, None], 1 - self.class_far)

    @property
    def consistency(self) -> Consistency:
        """The utility curves over the calibration range, with OPIS and the best and worst classes."""
        within = slice(*self.calibration)
        thresholds = self.thresholds[within]
        members = tuple(self.numbers.tolist())
        indices = np.arange(len(members))
        curves = self.utility[:, within]
        return Consistency(thresholds, curves, members, indices, range_ends(thresholds), self.possible_error)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The profile as arrays that compress well: counts as their differences along the thresholds."""
        arrays = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        for name in COUNT_FIELDS:
            arrays[name] = np.diff(arrays[name], axis=-1, prepend=0).astype(np.uint32)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "ThresholdProfile":
        """The profile behind `arrays`."""
        values: dict[str, Any] = {field.name: arrays[field.name] for field in fields(cls)}
        for name in COUNT_FIELDS:
            values[name] = np.cumsum(values[name], axis=-1, dtype=np.int64)
        first, last = values["calibration"].tolist()
        scalars = {name: values[name].item() for name in ("positives", "negatives", "scored", "possible_error")}
        return cls(**{**values, **scalars, "calibration": (first, last)})


COUNT_FIELDS = ("positive", "negative", "class_positive", "class_negative")


def threshold_profile(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    gallery_embeddings: EmbeddingsLike | None = None,
    gallery_labels: LabelsLike | None = None,
    *,
    geometry: GeometryName = "cosine",
    cohort: Cohort | None = None,
    block_rows: int | None = None,
) -> ThresholdProfile:
    """Count the accepted pairs, overall and of each class, at thresholds over the calibration range and around it.

    With a `cohort`, thresholds are negated scores −s′ in place of distances.
    """
    sets = prepare_sets(embeddings, labels, gallery_embeddings, gallery_labels, geometry=geometry, cohort=cohort)
    return profile_distances(pair_distances(sets, block_rows=block_rows))


def profile_distances(distances: PairDistances) -> ThresholdProfile:
    """From the pair distances: see `ThresholdProfile`."""
    # Before the thresholds, which a single class has none of: it has an error of its own.
    compared_classes(distances)
    scored = "cohort" in distances.sets.compared_by
    options = {"calibration_far": DEFAULT_FAR, "calibration_range": None, "calibration_points": CALIBRATION_POINTS}
    middle = range_thresholds([distances], options)
    before, after = outer_thresholds(distances, middle, scored)
    thresholds = np.concatenate([before, middle, after])
    return count_pairs(distances, thresholds, (len(before), len(before) + len(middle)))


def compared_classes(distances: PairDistances) -> NDArray[np.intp]:
    """The indices of the classes with positive and negative pairs; an error where these are fewer than two."""
    class_indices = np.flatnonzero((distances.positives_by_class > 0) & (distances.negatives_by_class > 0))
    if len(class_indices) < 2:
        raise EquimetricError("fewer than two classes have a positive and a negative pair; a profile compares classes")
    return class_indices


def count_pairs(
    distances: PairDistances, thresholds: Floats, calibration: tuple[int, int], *, strictly_below: bool = False
) -> ThresholdProfile:
    """The accepted pairs at given ascending thresholds, of which [first, last) are the calibration range.

    With `strictly_below`, pairs at the distance of a threshold are not accepted.
    """
    class_indices = compared_classes(distances)
    overall, by_class = (
        count(thresholds, strictly_below=strictly_below)
        for count in (distances.count_accepted, distances.count_accepted_by_class)
    )
    class_counts = by_class.positive[class_indices], by_class.negative[class_indices]
    positive, negative, class_positive, class_negative = (
        np.rint(counts).astype(np.int64) for counts in (overall.positive, overall.negative, *class_counts)
    )
    return ThresholdProfile(
        thresholds,
        calibration,
        positive,
        negative,
        distances.positives,
        distances.negatives,
        np.asarray([distances.sets.class_labels[index] for index in class_indices]),
        class_positive,
        class_negative,
        distances.positives_by_class[class_indices],
        distances.negatives_by_class[class_indices],
        "cohort" in distances.sets.compared_by,
        distances.possible_error(thresholds),
    )


def outer_thresholds(distances: PairDistances, middle: Floats, scored: bool) -> tuple[Floats, Floats]:
    """Thresholds below the calibration range, from a TAR of 1 % on, and above it, up to a FAR of 50 %."""
    low, high = range_ends(middle)
    first = low
    step = high - low
    while float(distances.count_accepted(first).positive) > MIN_TAR * distances.positives and (scored or first > 0):
        first = first - step if scored else max(0.0, first - step)
        step *= 1.5
    last = float(distances.negative_distance(int(MAX_FAR * (distances.negatives - 1))))
    before = np.linspace(first, low, OUTER_POINTS + 1)[:-1] if first < low else middle[:0]
    after = np.linspace(high, last, OUTER_POINTS + 1)[1:] if last > high else middle[:0]
    return before, after
