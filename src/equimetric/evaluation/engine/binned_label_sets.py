"""Many pairs of samples with several labels: `BinnedPairs` whose pairs count for every label they belong to.

A sample counts once for each of its labels, as if it had as many rows. Positive pairs are no small part here, so that
kinds of pairs are separated in every block, and each pair is read from both ends.
"""

from itertools import product
from typing import Any

import torch
from torch import Tensor

from equimetric.evaluation.engine.binned_pairs import BLOCK_COLUMNS, BLOCK_ROWS, BinnedPairs
from equimetric.evaluation.engine.bins import BINS, Histogram, tile_closeness
from equimetric.evaluation.engine.label_sets import MultiLabelSets
from equimetric.evaluation.engine.survey import Survey
from equimetric.evaluation.engine.tile_outputs import concatenate
from equimetric.evaluation.engine.tiles import Tile
from equimetric.ops.blocks import slices

__all__ = ["BinnedLabelSets"]


class BinnedLabelSets(BinnedPairs):
    """Negative and positive pairs in bins, overall and for each label; the closest negative pairs singly."""

    sets: MultiLabelSets

    def __init__(self, sets: MultiLabelSets, survey: Survey) -> None:
        super().__init__(sets, survey)
        # Of one set every pair is read twice, with a gallery once.
        self._times = 2 if self._with_gallery else 1
        zeros = torch.zeros(len(sets.class_labels), dtype=torch.int64, device=sets.queries.device)
        self._negatives_of, self._positives_of, self._negatives_read = zeros.clone(), zeros.clone(), 0

    def _largest_classes(self) -> tuple[int, int]:
        return int(self.sets.query_labels.sum(dim=0).max()), int(self.sets.gallery_labels.sum(dim=0).max())

    def collect(self, tile: Tile) -> None:
        """Count the pairs of a tile for the labels at its rows, with a gallery also for those at its columns."""
        closeness, items = tile_closeness(tile), tile.items
        blocks = product(slices(len(closeness), BLOCK_ROWS), slices(len(items), BLOCK_COLUMNS))
        outputs = [
            self._count_block(closeness[rows, columns], tile.rows[rows], items[columns]) for rows, columns in blocks
        ]
        closest, positives = zip(*outputs, strict=True)
        self._read_closest.add(tile.number, *concatenate(closest))
        if self._positive is None:
            self._read_positives.add(tile.number, *concatenate(positives))

    def partial(self) -> Any:
        """The counts and kept pairs of the tiles so far."""
        return super().partial(), (self._negatives_of, self._positives_of, self._negatives_read)

    def merge(self, partial: Any) -> None:
        """Add those of other tiles."""
        pair_counts, (negatives_of, positives_of, negatives_read) = partial
        super().merge(pair_counts)
        self._negatives_of += negatives_of
        self._positives_of += positives_of
        self._negatives_read += negatives_read

    def _count_block(
        self, closeness: Tensor, queries: Tensor, items: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Count the pairs (B, K) of queries (B,) and consecutive items (K,); returns those to keep singly."""
        sets = self.sets
        shared, exists = sets.shares_label(queries, slice(int(items[0]), int(items[-1]) + 1)), closeness > -torch.inf
        positive, negative = shared & exists, exists & ~shared
        once = exists if self._with_gallery else exists & (queries[:, None] < items)
        self._negatives_read += int(negative.sum())

        row_labels, column_labels = sets.query_labels[queries], sets.gallery_labels[items]
        bins = self._negative.grid.bins(closeness)
        self._negative.bins.add_(torch.bincount(bins[negative], minlength=BINS), alpha=self._times)
        self._count_rows(self._negative, bins, negative, row_labels, self._negatives_of)
        if self._with_gallery:
            self._count_rows(self._negative, bins.T, negative.T, column_labels, self._negatives_of)
        closest = self._pairs(closeness, negative & once & (bins == BINS - 1), queries, items)
        if self._positive is None:
            return closest, self._pairs(closeness, positive & once, queries, items)
        bins = self._positive.grid.bins(closeness)
        self._positive.bins.add_(torch.bincount(bins[positive], minlength=BINS), alpha=self._times)
        self._count_rows(self._positive, bins, positive, row_labels, self._positives_of, column_labels, self._times)
        return closest, ()

    def _pairs(self, closeness: Tensor, mask: Tensor, queries: Tensor, items: Tensor) -> tuple[Tensor, ...]:
        row, column = mask.nonzero(as_tuple=True)
        first, second = self.sets.query_classes[queries[row]], self.sets.gallery_classes[items[column]]
        return closeness[row, column], first.int(), second.int()

    def _count_rows(
        self,
        histogram: Histogram,
        bins: Tensor,
        mask: Tensor,
        labels: Tensor,
        totals: Tensor,
        column_labels: Tensor | None = None,
        times: int = 1,
    ) -> None:
        """Count the marked pairs (B, K) for the labels (B, C) of their rows; of both ends, given those of columns."""
        row, label = labels.nonzero(as_tuple=True)
        for block in slices(len(row), BLOCK_ROWS):
            marked = mask[row[block]]
            if column_labels is not None:
                marked = marked & column_labels.T[label[block]]
            totals.index_add_(0, label[block], marked.sum(dim=1) * times)
            start = histogram.by_class.start_of(label[block])[:, None]
            histogram.by_class.count_marked(bins[row[block]], marked, start, times)

    def _count_negatives(self) -> tuple[Tensor, int]:
        return self._negatives_of, self._negatives_read * self._times // 2

    def _count_positives(self) -> tuple[Tensor, int]:
        pairs = int(self.sets.num_relevant.sum())
        return self._positives_of, pairs * self._times // 2
