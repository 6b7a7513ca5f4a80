"""Few pairs: every distance is kept."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.images import Images
from equimetric.evaluation.engine.pair_classes import PairClasses
from equimetric.evaluation.engine.pair_counts import (
    BLOCK_PAIRS,
    AcceptedPairs,
    ClosestPairs,
    GroupCounts,
    PairCounts,
    count_within,
    first_accepting,
)
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.tile_outputs import TileOutputs
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.ops.blocks import slices

__all__ = ["AllPairs"]

GRID = 256


class AllPairs:
    """The distance and the two images of every pair."""

    keeps_positives = True
    exact_far = 1.0

    def __init__(self, sets: LabelledSets, images: Images) -> None:
        self.sets, self.images, self._classes = sets, images, PairClasses.from_sets(sets)
        self._read = TileOutputs()

    def collect(self, tile: Tile) -> None:
        """Keep the tile's pairs; without a gallery each pair once."""
        exists, items = tile.similarity > -torch.inf, tile.items
        if self.sets.gallery is None:
            exists &= items > tile.rows[:, None]
        self._keep(tile, exists, tile.rows, items)

    def collect_strip(self, strip: Strip) -> None:
        """Keep the strip's pairs, those among its own queries once."""
        exists = (strip.similarity > -torch.inf).triu_(1 + strip.rows.start - strip.columns.start)
        self._keep(strip, exists, strip.queries, strip.items)

    def _keep(self, block: Tile | Strip, exists: Tensor, queries: Tensor, items: Tensor) -> None:
        row, column = exists.nonzero(as_tuple=True)
        distance = block.matrix.distance(block.similarity.double(), queries)[row, column]
        first = self.images.query_images[queries.cpu().numpy()][row.cpu().numpy()]
        second = self.images.item_images[items.cpu().numpy()][column.cpu().numpy()]
        self._read.add(block.number, distance.cpu(), torch.from_numpy(first), torch.from_numpy(second))

    def partial(self) -> Any:
        """The pairs of the tiles so far."""
        return self._read

    def merge(self, partial: Any) -> None:
        """Take the pairs of other tiles."""
        self._read.merge(partial)

    def finish(self) -> None:
        """Join the tiles, sort the distances, count the pairs of each class."""
        self._distance, self._first, self._second = (part.numpy() for part in self._read.join())
        same = self._is_positive(self._first, self._second)
        self._positive, self._negative = np.sort(self._distance[same]), np.sort(self._distance[~same])
        self.positives, self.negatives = len(self._positive), len(self._negative)
        overall = self.count_accepted_by_class(
            np.array([np.inf]), slice(0, len(self.sets.class_labels)), strictly_below=False
        )
        self.positives_by_class = overall.positive[:, 0].astype(np.int64)
        self.negatives_by_class = overall.negative[:, 0].astype(np.int64)

    def _is_positive(self, first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which pairs of images (P,) are positive."""
        return self._classes.positive(self.images.classes[first], self.images.classes[second])

    def count_accepted(self, thresholds: Floats, *, strictly_below: bool) -> PairCounts:
        """Positions in the sorted distances."""
        return PairCounts(
            *(count_within(kind, thresholds, strictly_below) for kind in (self._positive, self._negative))
        )

    def count_accepted_by_class(self, thresholds: Floats, classes: slice, *, strictly_below: bool) -> PairCounts:
        """Count every pair at the first threshold that accepts it, for the classes at both ends."""
        tables = [GroupCounts(classes, len(thresholds)) for _ in range(2)]
        for first, second, threshold_index in self._first_thresholds(thresholds, strictly_below):
            first_class, second_class = self.images.classes[first], self.images.classes[second]
            same = self._classes.positive(first_class, second_class)
            self._classes.count_positive(tables[0], first_class[same], second_class[same], threshold_index[same])
            self._classes.count_negative(tables[1], first_class[~same], second_class[~same], threshold_index[~same])
        return PairCounts(*(table.cumulative_counts() for table in tables))

    def image_thresholds(self, thresholds: Floats) -> Floats:
        """All of them: every distance is known."""
        return thresholds

    def count_accepted_by_image(self, thresholds: Floats, images: slice) -> PairCounts:
        """Count every pair at the first threshold that accepts it, for the images at both ends."""
        tables = [GroupCounts(images, len(thresholds)) for _ in range(2)]
        for first, second, threshold_index in self._first_thresholds(thresholds, strictly_below=False):
            same = self._is_positive(first, second)
            for table, kind in zip(tables, (same, ~same), strict=True):
                for end in (first, second):
                    table.add(end[kind], threshold_index[kind])
        return PairCounts(*(table.cumulative_counts() for table in tables))

    def list_accepted_pairs(self, thresholds: Floats, images: NDArray[np.int32]) -> AcceptedPairs:
        """Pairs with one of these images first; within one set a pair has two firsts."""
        drawn = np.zeros(len(self.images), bool)
        drawn[images] = True
        accepted_parts = []
        for first, second, threshold_index in self._first_thresholds(thresholds, strictly_below=False):
            negative = ~self._is_positive(first, second)
            ends = [(first, second), (second, first)]
            for image, partner in ends if self.sets.gallery is None else ends[:1]:
                accepted = negative & drawn[image]
                accepted_parts.append((image[accepted], partner[accepted], threshold_index[accepted]))
        return AcceptedPairs(*(np.concatenate(parts) for parts in zip(*accepted_parts, strict=True)))

    def _first_thresholds(
        self, thresholds: Floats, strictly_below: bool
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32], Integers]]:
        """The images of accepted pairs and the first threshold that accepts them, some pairs at a time."""
        for pairs in slices(len(self._distance), BLOCK_PAIRS):
            distance = self._distance[pairs]
            within = np.flatnonzero(distance < thresholds[-1] if strictly_below else distance <= thresholds[-1])
            threshold_index = first_accepting(thresholds, distance[within], strictly_below)
            yield self._first[pairs][within], self._second[pairs][within], threshold_index

    def negative_distance(self, rank: Integers) -> Floats:
        """Look up the sorted distances."""
        return self._negative[rank]

    def distance_by_class(self, rank: Integers, *, positive: bool) -> tuple[Floats, Floats]:
        """Between two of some distances counts tell the rank apart; only the pairs in between are sorted."""
        overall = self._positive if positive else self._negative
        grid = np.unique(overall[np.linspace(0, len(overall) - 1, GRID).astype(np.int64)])
        counts = self.count_accepted_by_class(grid, slice(0, len(rank)), strictly_below=False)
        within = counts.positive if positive else counts.negative
        threshold_index = np.argmax(within > rank[:, None], axis=1)
        bounds, before = np.append(-np.inf, grid), np.column_stack([np.zeros(len(rank)), within])
        classes, distances = [], []
        for pairs in slices(len(self._distance), BLOCK_PAIRS):
            distance = self._distance[pairs]
            first, second = (self.images.classes[ends[pairs]] for ends in (self._first, self._second))
            kind = (first == second) == positive
            for end in (first,) if positive else (first, second):
                between = (
                    kind & (distance > bounds[threshold_index[end]]) & (distance <= bounds[threshold_index[end] + 1])
                )
                classes.append(end[between])
                distances.append(distance[between])
        pair_classes, distance = np.concatenate(classes), np.concatenate(distances)
        distance = distance[np.lexsort((distance, pair_classes))]
        start = np.cumsum(np.bincount(pair_classes, minlength=len(rank))) - np.bincount(
            pair_classes, minlength=len(rank)
        )
        index = start + rank - before[np.arange(len(rank)), threshold_index].astype(np.int64)
        return distance[np.clip(index, 0, len(distance) - 1)], np.zeros(len(rank))

    def closest_negatives(self, count: int) -> ClosestPairs:
        """Sort only the pairs that are needed."""
        within = self._negative[min(count, self.negatives) - 1]
        pairs = np.flatnonzero(self._distance <= within)
        first, second = (self.images.classes[ends[pairs]] for ends in (self._first, self._second))
        order = np.flatnonzero(~self._classes.positive(first, second))
        order = order[np.argsort(self._distance[pairs[order]], kind="stable")][:count]
        return ClosestPairs(self._distance[pairs[order]], first[order], second[order])

    def operating_distances(self) -> Floats:
        """All distinct distances."""
        return np.unique(np.concatenate([self._positive, self._negative]))

    def possible_error(self, thresholds: Floats) -> float:  # noqa: ARG002
        """Nothing is interpolated."""
        return 0.0
