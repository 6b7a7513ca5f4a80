"""Counts by image where pairs are many: the accepted pairs of every image at a few dozen thresholds."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.bins import distance_at, tile_closeness
from equimetric.evaluation.engine.images import Images
from equimetric.evaluation.engine.pair_counts import AcceptedPairs, PairCounts
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Tile
from equimetric.ops.blocks import slices
from equimetric.ops.masks import flatnonzero

__all__ = ["ImageBins"]

TABLE_BYTES = 2**26
DRAWN_COLUMNS = 2**18
"""Gallery items that the drawn images are compared with at a time."""
MIN_EDGES = 12
"""The mean of a variance over the range of thresholds hardly depends on their number."""


class ImageBins:
    """Positive pairs, and all pairs, of every image between evenly spaced edges over the calibration range.

    Counts are known at the edges alone, without interpolation.
    """

    def __init__(self, sets: LabelledSets, images: Images, closeness_range: tuple[float, float], points: int) -> None:
        """`points` edges, or what memory allows, between the closenesses at the ends of the surveyed range."""
        self.geometry, self.dimension, device = sets.geometry, sets.queries.shape[1], sets.queries.device
        self.query_images, self.item_images = (
            torch.from_numpy(image_index).to(device) for image_index in (images.query_images, images.item_images)
        )
        self.edges = max(MIN_EDGES, min(points, TABLE_BYTES // (8 * len(images))))
        low, high = closeness_range
        self.scale = float(np.float32((self.edges - 1) / max(high - low, 1e-6 * max(abs(low), abs(high), 1e-30))))
        self.low = float(np.float32(low))
        self.positive, self.total = (
            torch.zeros(len(images), self.edges + 1, dtype=torch.int32, device=device) for _ in range(2)
        )

    def draw(self, sets: LabelledSets, matrix: SimilarityMatrix, images: Images, drawn: NDArray[np.int32]) -> None:
        """Keep the negative pairs of some images, as queries, down to the lowest edge."""
        rows = torch.from_numpy(np.flatnonzero(np.isin(images.query_images, drawn))).to(matrix.device)
        chunks = []
        for columns in slices(len(sets.gallery_classes), DRAWN_COLUMNS):
            closeness = tile_closeness(Tile(matrix, rows, matrix.similarity(rows, columns=columns), columns=columns))
            closeness.masked_fill_(sets.query_classes[rows, None] == sets.gallery_classes[columns], -torch.inf)
            near = flatnonzero(closeness >= self.low)
            index = self._edge_index(closeness.view(-1)[near])
            chunks.append((near // closeness.shape[1], columns.start + near % closeness.shape[1], index))
        row, item, index = (torch.cat(parts) for parts in zip(*chunks, strict=True))
        # By row, as if all columns were read at once.
        order = row.argsort(stable=True)
        first, second, edge = (part.cpu().numpy() for part in (rows[row[order]], item[order], index[order]))
        self._drawn = AcceptedPairs(
            images.query_images[first], images.item_images[second], self.edges - edge.astype(np.int64)
        )

    def partial(self) -> tuple[Tensor, Tensor]:
        """The counts of the pairs so far."""
        return self.positive, self.total

    def merge(self, partial: tuple[Tensor, Tensor]) -> None:
        """Add the counts of other pairs."""
        positive, total = partial
        self.positive += positive
        self.total += total

    def list_accepted_pairs(self, thresholds: Floats) -> AcceptedPairs:
        """The negative pairs of the drawn images within these edges."""
        first = int(np.searchsorted(self._edge_distances, thresholds[0]))
        index = np.maximum(self._drawn.threshold_index - first, 0)
        within = index < len(thresholds)
        return AcceptedPairs(self._drawn.first[within], self._drawn.second[within], index[within])

    def _edge_index(self, closeness: Tensor) -> Tensor:
        """0 beyond all edges, else the number of edges that are not closer than each pair."""
        return closeness.sub(self.low).mul_(self.scale).add_(1).clamp_(0, self.edges).int()

    def count_block(
        self, closeness: Tensor, row: Tensor, column: Tensor, queries: Tensor, items: Tensor, *, both_ends: bool
    ) -> None:
        """Count pairs (P,) at rows and columns of a block of queries (B,) and items (K,), from one or both ends."""
        ends = (
            self._start(self.query_images[queries]).index_select(0, row),
            self._start(self.item_images[items]).index_select(0, column),
        )
        self._count(self.total, closeness, ends if both_ends else ends[:1])

    def count_positive(self, closeness: Tensor, queries: Tensor, items: Tensor, *, both_ends: bool) -> None:
        """Count positive pairs (P,) among those of `count_block`."""
        ends = self._start(self.query_images[queries]), self._start(self.item_images[items])
        self._count(self.positive, closeness, ends if both_ends else ends[:1])

    def _start(self, images: Tensor) -> Tensor:
        """Where the counts of these images begin in a table."""
        return images * (self.edges + 1)

    def _count(self, table: Tensor, closeness: Tensor, ends: Sequence[Tensor]) -> None:
        index = self._edge_index(closeness)
        increments = table.new_ones(1).expand(len(index))
        for start in ends:
            table.view(-1).index_add_(0, index + start, increments)

    def thresholds(self, within: Floats) -> Floats:
        """The edges, as ascending distances, between the first and the last of these thresholds."""
        distances = self._edge_distances
        inside: Floats = distances[(distances >= within[0]) & (distances <= within[-1])]
        if len(inside) < 2:
            raise EquimetricError(
                f"sampling noise is measured at {self.edges} thresholds, of which {len(inside)} lie in the calibration "
                "range; give a larger noise_points, or a wider range"
            )
        return inside

    def count_accepted(self, thresholds: Floats, images: slice) -> PairCounts:
        """Pairs of each image of a range within these edges, (I, G)."""
        index = np.searchsorted(self._edge_distances, thresholds)
        # Edges ascend in closeness, thresholds in distance; the first column lies beyond all edges.
        positive, total = (
            table[images, 1:].flip(1).cumsum(1).cpu().numpy()[:, index].astype(np.float64)
            for table in (self.positive, self.total)
        )
        return PairCounts(positive, total - positive)

    @property
    def _edge_distances(self) -> Floats:
        closeness = self.low + np.arange(self.edges) / self.scale
        return distance_at(closeness, self.geometry, self.dimension)[::-1]
