"""The distances of all pairs: how many positive and negative pairs a threshold accepts, overall and by class.

A positive pair is of one class, a negative pair of two; with c at exactly one end it is a negative pair of class c.
Where samples have several labels, a positive pair shares a label and is one of every class that both ends have; a
negative pair shares none and is one of every class at either end.
Without a gallery the pairs are unordered and a sample is never paired with itself (by index: duplicates are valid
pairs); with a gallery they are all (query, gallery item).

Few pairs are all kept (`AllPairs`). Otherwise (`BinnedPairs`) memory is bounded and one scan is enough:

* The closest negative pairs, beyond a cut that a survey of some rows finds before the scan, are kept: small false
  accept rates are exact.
* The others are counted in 16,384 bins of equal width between the farthest surveyed pair and the cut; thresholds
  inside a bin interpolate linearly. For every class the counts at some edges are kept, at all edges where consistency
  is measured. `possible_error` bounds the error of the interpolation.
* Where only consistency is measured, negative pairs farther than its thresholds share one bin and are not read.
* Where sampling noise is measured, every image has its own counts at a few dozen thresholds in that range.
* Positive pairs are kept if they are few enough, else counted in their own bins.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.all_pairs import AllPairs
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.binned_label_sets import BinnedLabelSets
from equimetric.evaluation.engine.binned_pairs import BinnedPairs
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.custom_geometry import similarity_matrix
from equimetric.evaluation.engine.image_bins import ImageBins
from equimetric.evaluation.engine.images import Images, draw_images, images_by_class, number_images, pairs_by_image
from equimetric.evaluation.engine.label_sets import MultiLabelSets
from equimetric.evaluation.engine.pair_counts import AcceptedPairs, ClosestPairs, PairCounts
from equimetric.evaluation.engine.scan import scan
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.survey import plan_bins
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.evaluation.families import METRICS, Metric

__all__ = ["NOISE_POINTS", "PairDistances", "pair_distances"]

NOISE_POINTS = 48
"""Thresholds over the surveyed calibration range at which the pairs of images are counted."""
MAX_KEPT_PAIRS = 2**23
"""Up to this many pairs are all kept: 16 bytes each, and 8 more once sorted."""


class PairStore(Protocol):
    """Distances of pairs, read tile by tile."""

    positives_by_class: Integers
    negatives_by_class: Integers
    positives: int
    negatives: int
    keeps_positives: bool
    exact_far: float

    def collect(self, tile: Tile) -> None:
        """Read one tile."""

    def collect_strip(self, strip: Strip) -> None:
        """Read one strip."""

    def partial(self) -> Any:
        """Partial result of the tiles read so far."""

    def merge(self, partial: Any) -> None:
        """Add the partial result of other tiles."""

    def finish(self) -> None:
        """Sort and sum."""

    def count_accepted(self, thresholds: Floats, *, strictly_below: bool) -> PairCounts:
        """Pairs with d ≤ t, or d < t, of all classes."""

    def count_accepted_by_class(self, thresholds: Floats, classes: slice, *, strictly_below: bool) -> PairCounts:
        """The same for each class of a range; thresholds ascend."""

    def image_thresholds(self, thresholds: Floats) -> Floats:
        """Thresholds, between the first and the last of these, at which the counts of images are known."""

    def count_accepted_by_image(self, thresholds: Floats, images: slice) -> PairCounts:
        """Pairs with d ≤ t and an image of the range at one end, at `image_thresholds`."""

    def list_accepted_pairs(self, thresholds: Floats, images: NDArray[np.int32]) -> AcceptedPairs:
        """Single negative pairs of the drawn images, at `image_thresholds`."""

    def negative_distance(self, rank: Integers) -> Floats:
        """The distance of the negative pair of that rank, closest first, from 0."""

    def distance_by_class(self, rank: Integers, *, positive: bool) -> tuple[Floats, Floats]:
        """The distance of the pair of that rank of each class, (C,), closest first, and its possible error."""

    def closest_negatives(self, count: int) -> ClosestPairs:
        """The closest negative pairs: `count`, or as many as are kept."""

    def operating_distances(self) -> Floats:
        """All thresholds, ascending, at which the counts are known without interpolation."""

    def possible_error(self, thresholds: Floats) -> float:
        """The largest possible error of a class's false accept rate at these thresholds."""


class PairDistances(Collector):
    """The distances of all pairs of the scan, as counts of pairs within thresholds.

    Options it reads: `calibration_far` (two false accept rates) or `calibration_range` (two distances), between which
    the counts of the classes are finest; `closest_share`, the share of the negative pairs to keep singly.
    """

    accepts_columns = True

    distances: PairStore

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[Metric] = ()) -> None:
        super().__init__(sets, options, metrics)
        self.classes = len(sets.class_labels)
        # Families with the option `calibration_range` read no threshold outside of it.
        families = [METRICS[metric.family] for metric in metrics]
        self.range_only = bool(families) and all("calibration_range" in family.options for family in families)
        self.by_image = any("noise_points" in family.options for family in families)

    def prepare(self, matrix: SimilarityMatrix) -> None:
        """Keep every pair if they are few; else plan the bins."""
        pairs = len(self.sets.queries) * len(self.sets.gallery_classes)
        self.is_exact = (pairs // 2 if self.sets.gallery is None else pairs) <= MAX_KEPT_PAIRS
        if self.is_exact:
            self.distances = AllPairs(self.sets, self.images)
        else:
            survey = plan_bins(self.sets, matrix, self.options, range_only=self.range_only)
            if isinstance(self.sets, MultiLabelSets):
                self.distances = BinnedLabelSets(self.sets, survey)
                return
            points = self.options.get("noise_points", NOISE_POINTS)
            by_image = ImageBins(self.sets, self.images, survey.calibration_range, points) if self.by_image else None
            if by_image is not None:
                by_image.draw(self.sets, matrix, self.images, self.drawn_images)
            self.distances = BinnedPairs(self.sets, survey, by_image)

    def collect(self, tile: Tile) -> None:
        """Read one tile."""
        self.distances.collect(tile)

    def accepts_strips(self) -> bool:
        """A distance is the same from both ends; labels are counted end by end."""
        return not isinstance(self.distances, BinnedLabelSets)

    def collect_strip(self, strip: Strip) -> None:
        """Read one strip."""
        self.distances.collect_strip(strip)

    def partial(self, rows: Tensor) -> Any:  # noqa: ARG002
        """Partial result of the tiles read so far."""
        return self.distances.partial()

    def merge(self, partial: Any) -> None:
        """Add the partial result of other tiles."""
        self.distances.merge(partial)

    def finish(self) -> None:
        """Sort and sum; raise an error where there is no positive or no negative pair."""
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
        """The false accept rate up to which negative pairs are kept singly; 1 where all are."""
        return self.distances.exact_far

    @property
    def positives_by_class(self) -> Integers:
        """Pairs inside each class, (C,)."""
        return self.distances.positives_by_class

    @property
    def negatives_by_class(self) -> Integers:
        """Pairs with exactly one end in the class, (C,)."""
        return self.distances.negatives_by_class

    @cached_property
    def images(self) -> Images:
        """The images of the sets, class by class."""
        return number_images(self.sets)

    @property
    def images_by_class(self) -> Integers:
        """Number of images of each class, (C,)."""
        return images_by_class(self.sets, self.images)

    @cached_property
    def pairs_by_image(self) -> PairCounts:
        """All pairs with each image at one end, (I,)."""
        return pairs_by_image(self.sets, self.images)

    @cached_property
    def drawn_images(self) -> NDArray[np.int32]:
        """Images of whole classes whose negative pairs are known singly: all where there are few."""
        return draw_images(self.sets, self.images)

    @property
    def knows_images(self) -> bool:
        """Whether pairs are counted by image: where all are kept, or where a metric asks for it; not by label."""
        return (self.is_exact or self.by_image) and not isinstance(self.sets, MultiLabelSets)

    def image_thresholds(self, thresholds: Floats) -> Floats:
        """Thresholds, between the first and the last of these, at which the counts of images are known."""
        return self.distances.image_thresholds(thresholds)

    def count_accepted_by_image(self, thresholds: Floats, images: slice) -> PairCounts:
        """Pairs with distance ≤ t and each image of a range at one end, (I, G), at `image_thresholds`."""
        return self.distances.count_accepted_by_image(thresholds, images)

    def list_accepted_pairs(self, thresholds: Floats) -> AcceptedPairs:
        """Single negative pairs of `drawn_images` with distance ≤ the last of the `image_thresholds`."""
        return self.distances.list_accepted_pairs(thresholds, self.drawn_images)

    def count_accepted(self, thresholds: Any, *, strictly_below: bool = False) -> PairCounts:
        """Pairs with distance ≤ t (or < t), overall, for each of G thresholds in any order."""
        return self.distances.count_accepted(np.asarray(thresholds, np.float64), strictly_below=strictly_below)

    def count_accepted_by_class(
        self, thresholds: Any, classes: slice | None = None, *, strictly_below: bool = False
    ) -> PairCounts:
        """Pairs with distance ≤ t (or < t) of all classes or a range of them, (C, G), for G ascending thresholds."""
        class_range = slice(0, self.classes) if classes is None else classes
        return self.distances.count_accepted_by_class(
            np.asarray(thresholds, np.float64), class_range, strictly_below=strictly_below
        )

    def negative_distance(self, rank: Any) -> Floats:
        """The distance of the negative pair of each rank, closest first, from 0."""
        return self.distances.negative_distance(np.asarray(rank, np.int64))

    def distance_by_class(self, rank: Integers, *, positive: bool) -> tuple[Floats, Floats]:
        """The distance of the positive or negative pair of that rank of each class, (C,), and its possible error."""
        return self.distances.distance_by_class(rank, positive=positive)

    def closest_negatives(self, count: int) -> ClosestPairs:
        """The closest negative pairs: `count`, or as many as are kept."""
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
    range_only: bool = False,
    by_image: bool = False,
    block_rows: int | None = None,
    progress: bool = False,
    **options: Any,
) -> PairDistances:
    """The distances of all pairs of a labelled set, by its own scan.

    With `range_only`, counts are known only within the calibration range, which takes less time; with `by_image` they
    are known for every image, too.
    """
    collector = PairDistances(sets, options)
    collector.range_only, collector.by_image = range_only, by_image
    scan(similarity_matrix(sets), [collector], block_rows=block_rows, progress=progress)
    return collector
