"""Few pairs: every distance is kept."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.pair_classes import PairClasses
from equimetric.evaluation.engine.pair_counts import (
    BLOCK_PAIRS,
    ClassCounts,
    ClosestPairs,
    PairCounts,
    count_within,
    first_accepting,
)
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.ops.blocks import slices

__all__ = ["AllPairs"]


class AllPairs:
    """The distance and the two classes, or groups of labels, of every pair."""

    keeps_positives = True
    exact_far = 1.0

    def __init__(self, sets: LabelledSets) -> None:
        self.sets, self._classes = sets, PairClasses.of(sets)
        self._read: list[tuple[Floats, NDArray[np.int32], NDArray[np.int32]]] = []

    def collect(self, tile: Tile) -> None:
        """Keep the tile's pairs; without a gallery each pair once."""
        exists = tile.similarity > -torch.inf
        items = torch.arange(exists.shape[1], device=exists.device)
        if self.sets.gallery is None:
            exists &= items > tile.rows[:, None]
        self._keep(tile.matrix, tile.similarity, exists, tile.rows, items)

    def collect_strip(self, strip: Strip) -> None:
        """Keep the strip's pairs, those among its own queries once."""
        exists = (strip.similarity > -torch.inf).triu_(1)
        self._keep(strip.matrix, strip.similarity, exists, strip.queries, strip.items)

    def _keep(
        self, matrix: SimilarityMatrix, similarity: Tensor, exists: Tensor, queries: Tensor, items: Tensor
    ) -> None:
        row, column = exists.nonzero(as_tuple=True)
        distance = matrix.distance(similarity.double(), queries)[row, column]
        self._read.append(
            (
                distance.cpu().numpy(),
                self.sets.query_classes[queries[row]].int().cpu().numpy(),
                self.sets.gallery_classes[items[column]].int().cpu().numpy(),
            )
        )

    def finish(self) -> None:
        """Join the tiles, sort the distances, count the pairs of each class."""
        self._distance, self._first, self._second = (np.concatenate(parts) for parts in zip(*self._read, strict=True))
        self._read.clear()
        same = self._classes.positive(self._first, self._second)
        self._positive, self._negative = np.sort(self._distance[same]), np.sort(self._distance[~same])
        self.positives, self.negatives = len(self._positive), len(self._negative)
        of_all = self.accepted_by_class(np.array([np.inf]), slice(0, len(self.sets.class_labels)), strict=False)
        self.positives_by_class = of_all.positive[:, 0].astype(np.int64)
        self.negatives_by_class = of_all.negative[:, 0].astype(np.int64)

    def accepted(self, thresholds: Floats, *, strict: bool) -> PairCounts:
        """Positions in the sorted distances."""
        return PairCounts(*(count_within(of, thresholds, strict) for of in (self._positive, self._negative)))

    def accepted_by_class(self, thresholds: Floats, classes: slice, *, strict: bool) -> PairCounts:
        """Count every pair at the first threshold that accepts it, for the classes at both ends."""
        tables = [ClassCounts(classes, len(thresholds)) for _ in range(2)]
        for pairs in slices(len(self._distance), BLOCK_PAIRS):
            first, second = self._first[pairs], self._second[pairs]
            place = first_accepting(thresholds, self._distance[pairs], strict)
            same = self._classes.positive(first, second)
            self._classes.count_positive(tables[0], first[same], second[same], place[same])
            self._classes.count_negative(tables[1], first[~same], second[~same], place[~same])
        return PairCounts(*(table.accepted() for table in tables))

    def negative_distance(self, rank: Integers) -> Floats:
        """Look up the sorted distances."""
        return self._negative[rank]

    def closest_negatives(self, count: int) -> ClosestPairs:
        """Sort only the pairs that are needed."""
        within = self._negative[min(count, self.negatives) - 1]
        pairs = np.flatnonzero(self._distance <= within)
        pairs = pairs[~self._classes.positive(self._first[pairs], self._second[pairs])]
        pairs = pairs[np.argsort(self._distance[pairs], kind="stable")][:count]
        return ClosestPairs(self._distance[pairs], self._first[pairs], self._second[pairs])

    def operating_distances(self) -> Floats:
        """All distinct distances."""
        return np.unique(np.concatenate([self._positive, self._negative]))

    def possible_error(self, thresholds: Floats) -> float:  # noqa: ARG002
        """Nothing is interpolated."""
        return 0.0
