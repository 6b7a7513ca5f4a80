"""Many pairs: counted in bins of equal width; the closest negative and the positive ones are kept singly."""

import math
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.bins import BINS, Grid, Histogram, closeness_at, distance_at, tile_closeness
from equimetric.evaluation.engine.image_bins import ImageBins
from equimetric.evaluation.engine.pair_classes import PairClasses
from equimetric.evaluation.engine.pair_counts import (
    AcceptedPairs,
    ClosestPairs,
    GroupCounts,
    PairCounts,
    count_within,
    distance_of_rank,
    first_accepting,
)
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import ALL
from equimetric.evaluation.engine.survey import Survey
from equimetric.evaluation.engine.tile_outputs import TileOutputs, concatenate
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.ops.blocks import slices
from equimetric.ops.masks import flatnonzero

__all__ = ["BLOCK_COLUMNS", "BLOCK_ROWS", "BinnedPairs"]

POSITIVES_KEPT = 2**22
BLOCK_ROWS, BLOCK_COLUMNS = 2**9, 2**10
"""Pairs counted at a time: they should stay in the cache, and so should the counts of their classes."""


class BinnedPairs:
    """Negative pairs in bins of equal width, the closest of them singly; positive pairs singly if they fit."""

    def __init__(self, sets: LabelledSets, survey: Survey, images: ImageBins | None = None) -> None:
        """With `images`, pairs are also counted by image."""
        self._images = images
        self.sets, self.geometry, self.dimension = sets, sets.geometry, sets.queries.shape[1]
        self._classes = PairClasses.from_sets(sets)
        self._with_gallery = sets.gallery is not None
        self._negative, self._min_closeness = self._histogram(survey.negative, survey.fine_range), survey.min_closeness
        self.keeps_positives = int(sets.num_relevant.sum()) // (1 if self._with_gallery else 2) <= POSITIVES_KEPT
        self._positive = None if self.keeps_positives else self._histogram(survey.positive, survey.fine_range)
        self._read_positives, self._read_closest = TileOutputs(), TileOutputs()

    def _histogram(self, grid: Grid, interest: tuple[float, float]) -> Histogram:
        sets = self.sets
        max_queries, max_items = self._largest_classes()
        max_pairs = max_queries * len(sets.gallery_classes)
        if self._with_gallery:
            max_pairs += max_items * len(sets.query_classes)
        return Histogram(grid, interest, len(sets.class_labels), max_pairs, sets.queries.device)

    def _largest_classes(self) -> tuple[int, int]:
        """Largest number of queries, and of gallery items, of a class."""
        queries, items = self.sets.query_classes, self.sets.gallery_classes
        return int(torch.bincount(queries).max()), int(torch.bincount(items).max())

    def collect(self, tile: Tile) -> None:
        """Keep the closest negative pairs and the positive pairs; count the negative ones for each class.

        Within one set, the other end of a pair has its own row.
        """
        closeness, items = tile_closeness(tile), tile.items
        self._count(tile.number, closeness, tile.rows, items, both_ends=self._with_gallery)
        row, item = self._positive_pairs(tile.rows, tile.columns)
        pairs = closeness[row, item - (tile.columns.start or 0)], tile.rows[row], item
        self._move_positives(tile.number, *pairs, both_ends=self._with_gallery)

    def collect_strip(self, strip: Strip) -> None:
        """The same from a strip, which holds the pairs among its own queries twice and those with later ones once."""
        num_own, queries, items = strip.num_own_columns, strip.queries, strip.items
        self._count(strip.number, strip.similarity[:, :num_own], queries, items[:num_own], both_ends=False)
        self._count(strip.number, strip.similarity[:, num_own:], queries, items[num_own:], both_ends=True)
        row, item = self._positive_pairs(queries)
        position = strip.matrix.inverse_order[item]
        once = (position > strip.rows.start + row) & (position >= strip.columns.start) & (position < strip.columns.stop)
        row, item, column = row[once], item[once], position[once] - strip.columns.start
        self._move_positives(strip.number, strip.similarity[row, column], queries[row], item, both_ends=True)

    def _count(
        self, tile_number: tuple[int, int], closeness: Tensor, queries: Tensor, items: Tensor, *, both_ends: bool
    ) -> None:
        """Count pairs (B, K) of queries (B,) and items (K,), from their rows or from both ends; keep the closest."""
        first, second = self.sets.query_classes[queries], self.sets.gallery_classes[items]
        row_counts, column_counts = self._negative.by_class.start_of(first), self._negative.by_class.start_of(second)
        closest_parts: list[tuple[Tensor, ...]] = []
        for rows, columns in product(slices(len(first), BLOCK_ROWS), slices(len(second), BLOCK_COLUMNS)):
            block = closeness[rows, columns]
            if self._min_closeness == -math.inf:
                bins = self._negative.grid.bins(block)
                ends = [row_counts[rows, None], column_counts[columns]]
                row, column = _split(flatnonzero(bins == BINS - 1), block.shape[1])
                near = None if self._images is None else _entries_above(block, self._images.low)
            else:
                near = _entries_above(block, self._min_closeness)
                values, row, column = near
                bins = self._negative.grid.bins(values)
                ends = [row_counts[rows].index_select(0, row), column_counts[columns].index_select(0, column)]
                closest = flatnonzero(bins == BINS - 1)
                row, column = row[closest], column[closest]
            self._negative.count(bins, ends if both_ends else ends[:1])
            if self._images is not None and near is not None:
                self._images.count_block(*near, queries[rows], items[columns], both_ends=both_ends)
            row, column = rows.start + row, columns.start + column
            keep = first[row] != second[column]
            if not both_ends:
                keep &= queries[row] < items[column]
            row, column = row[keep], column[keep]
            closest_parts.append((closeness[row, column], first[row].int(), second[column].int()))
        # Joined: many small tensors allocated between large temporaries would keep their memory from being freed.
        if closest_parts:
            self._read_closest.add(tile_number, *concatenate(closest_parts))

    def _positive_pairs(self, queries: Tensor, columns: slice = ALL) -> tuple[Tensor, Tensor]:
        """Rows and items of the positive pairs of queries (B,) with a range of the gallery."""
        items = self.sets.relevant_columns(queries, columns)
        row, column = (items >= 0).nonzero(as_tuple=True)
        return row, items[row, column]

    def _move_positives(
        self, tile_number: tuple[int, int], closeness: Tensor, queries: Tensor, items: Tensor, *, both_ends: bool
    ) -> None:
        """Subtract positive pairs (P,) from the counts, from as many ends, and keep them if they fit."""
        exists = closeness > -torch.inf
        closeness, queries, items = closeness[exists], queries[exists], items[exists]
        classes, times = self.sets.query_classes[queries], 2 if both_ends else 1
        if self._images is not None:
            self._images.count_positive(closeness, queries, items, both_ends=both_ends)
        self._negative.count(
            self._negative.grid.bins(closeness), [self._negative.by_class.start_of(classes)], times=-times
        )
        if self._positive is not None:
            starts = self._positive.by_class.start_of(classes)
            self._positive.count(self._positive.grid.bins(closeness), [starts], times=times)
            return
        once = slice(None) if both_ends else queries < items
        self._read_positives.add(tile_number, closeness[once], classes[once].int())

    def partial(self) -> Any:
        """The counts and kept pairs of the tiles so far."""
        tables = [table for table in (self._negative, self._positive, self._images) if table is not None]
        return [table.partial() for table in tables], self._read_closest, self._read_positives

    def merge(self, partial: Any) -> None:
        """Add those of other tiles."""
        tables = [table for table in (self._negative, self._positive, self._images) if table is not None]
        partials, closest, positives = partial
        for table, others in zip(tables, partials, strict=True):
            table.merge(others)
        self._read_closest.merge(closest)
        self._read_positives.merge(positives)

    def finish(self) -> None:
        """Sort the kept pairs and accumulate the counts."""
        self._negative.finish(*self._count_negatives())
        self.negatives = int(self._negative.beyond_bin[0])
        self.negatives_by_class = self._negative.beyond_edge[:, 0].astype(np.int64)

        closeness, first, second = (part.cpu().numpy() for part in self._read_closest.join())
        order = np.argsort(-closeness)
        self._closest = ClosestPairs(self._distance(closeness[order].astype(np.float64)), first[order], second[order])
        self.exact_far = len(closeness) / max(1, self.negatives)
        # By rounding, the two ends of a pair may lie on both sides of the cut: the kept pairs decide.
        self._negative.beyond_bin[-1] = len(self._closest.distance)
        self._negative.beyond_bin = np.maximum.accumulate(self._negative.beyond_bin[::-1])[::-1]

        if self._positive is not None:
            self._positive.finish(*self._count_positives())
            self.positives = int(self._positive.beyond_bin[0])
            self.positives_by_class = self._positive.beyond_edge[:, 0].astype(np.int64) // 2
            return
        closeness, *ends = (part.cpu().numpy() for part in self._read_positives.join())
        self.positives = len(closeness)
        order = np.argsort(-closeness)
        self._kept_positives = self._distance(closeness[order].astype(np.float64))
        self._kept_ends = ends[0][order], ends[-1][order]
        table = GroupCounts(slice(0, len(self.sets.class_labels)), 1)
        self._classes.count_positive(table, *self._kept_ends, np.zeros(self.positives, np.int64))
        self.positives_by_class = table.cumulative_counts()[:, 0].astype(np.int64)

    def _count_positives(self) -> tuple[Tensor, int]:
        """Pairs inside each class, (C,), in both orders; all of them, once."""
        pairs = torch.zeros(len(self.sets.class_labels), dtype=torch.int64, device=self.sets.num_relevant.device)
        pairs.index_add_(0, self.sets.query_classes, self.sets.num_relevant)
        pairs = 2 * pairs if self._with_gallery else pairs
        return pairs, int(pairs.sum()) // 2

    def _count_negatives(self) -> tuple[Tensor, int]:
        """Pairs with exactly one end in each class, (C,), without excluded ones; all of them, once."""
        sets, classes = self.sets, len(self.sets.class_labels)
        queries, items = (
            torch.bincount(side, minlength=classes) for side in (sets.query_classes, sets.gallery_classes)
        )
        pairs = queries * (self._count_compared(items, 1) - items)
        if self._with_gallery:
            pairs += items * (self._count_compared(queries, 0) - queries)
        if sets.excluded is not None:
            first, second = sets.query_classes[sets.excluded[:, 0]], sets.gallery_classes[sets.excluded[:, 1]]
            for end in (first, second) if self._with_gallery else (first,):
                pairs -= torch.bincount(end[first != second], minlength=classes)
        return pairs, int(pairs.sum()) // 2

    def _count_compared(self, sizes: Tensor, side: int) -> Tensor:
        """Number of samples that each class is compared with, its own included: all, or (C,) those of its parent."""
        sets = self.sets
        if sets.parents is None:
            return sizes.sum()
        parent_of = torch.zeros_like(sizes)
        for classes, parents in zip((sets.query_classes, sets.gallery_classes), sets.parents, strict=True):
            parent_of[classes] = parents
        return torch.bincount(sets.parents[side], minlength=int(parent_of.max()) + 1)[parent_of]

    def count_accepted(self, thresholds: Floats, *, strictly_below: bool) -> PairCounts:
        """From the kept pairs where they reach, from the bins elsewhere."""
        closeness = self._closeness(thresholds, strictly_below)
        single_counts = count_within(self._closest.distance, thresholds, strictly_below)
        negative = np.where(closeness >= self._negative.closeness[-1], single_counts, self._negative.within(closeness))
        if self._positive is not None:
            return PairCounts(self._positive.within(closeness), negative)
        return PairCounts(count_within(self._kept_positives, thresholds, strictly_below), negative)

    def count_accepted_by_class(self, thresholds: Floats, classes: slice, *, strictly_below: bool) -> PairCounts:
        """The same, from the edges of every class."""
        closeness = self._closeness(thresholds, strictly_below)
        negative = self._negative.within_by_class(closeness, classes)
        is_exact = closeness >= self._negative.closeness[-1]
        if is_exact.any():
            table = GroupCounts(classes, int(is_exact.sum()))
            threshold_index = first_accepting(thresholds[is_exact], self._closest.distance, strictly_below)
            self._classes.count_negative(table, self._closest.first, self._closest.second, threshold_index)
            negative[:, is_exact] = table.cumulative_counts()
        if self._positive is not None:
            return PairCounts(self._positive.within_by_class(closeness, classes) / 2, negative)
        table = GroupCounts(classes, len(thresholds))
        self._classes.count_positive(
            table, *self._kept_ends, first_accepting(thresholds, self._kept_positives, strictly_below)
        )
        return PairCounts(table.cumulative_counts(), negative)

    def image_thresholds(self, thresholds: Floats) -> Floats:
        """The edges of the counts by image."""
        return self._require_images().thresholds(thresholds)

    def count_accepted_by_image(self, thresholds: Floats, images: slice) -> PairCounts:
        """Counts at the edges."""
        return self._require_images().count_accepted(thresholds, images)

    def list_accepted_pairs(self, thresholds: Floats, images: NDArray[np.int32]) -> AcceptedPairs:  # noqa: ARG002
        """Pairs of the images drawn before the scan."""
        return self._require_images().list_accepted_pairs(thresholds)

    def _require_images(self) -> ImageBins:
        assert self._images is not None, "pairs were not counted by image"
        return self._images

    def negative_distance(self, rank: Integers) -> Floats:
        """From the kept pairs; beyond them, pairs are evenly spread within a bin."""
        beyond, grid = self._negative.beyond_bin, self._negative.grid
        # The closest bin with more than `rank` pairs beyond its lower edge.
        bin_index = np.clip(BINS - 1 - np.searchsorted(beyond[::-1], rank, "right"), 0, BINS - 2)
        content = np.maximum(beyond[bin_index] - beyond[bin_index + 1], 1)
        from_top = np.clip((rank - beyond[bin_index + 1] + 0.5) / content, 0, 1)
        if self.geometry == "hamming":
            from_top = np.full_like(from_top, 0.5)
        interpolated = self._distance(grid.edges(bin_index + 1) - from_top / grid.scale)
        if not len(self._closest.distance):
            return interpolated
        return np.where(
            rank < len(self._closest.distance),
            self._closest.distance[np.minimum(rank, len(self._closest.distance) - 1)],
            interpolated,
        )

    def distance_by_class(self, rank: Integers, *, positive: bool) -> tuple[Floats, Floats]:
        """From kept pairs where they reach; elsewhere the middle of two edges, uncertain by half their distance."""
        if positive and self._positive is None:
            return distance_of_rank(self._kept_positives, self._kept_ends[0], rank), np.zeros(len(rank))
        histogram = self._positive if positive and self._positive is not None else self._negative
        low, high = histogram.closeness_of_rank(2 * rank if positive else rank)
        farther, nearer = self._distance(low), self._distance(np.minimum(high, histogram.edge_closeness[-1]))
        distance, error = (farther + nearer) / 2, np.abs(farther - nearer) / 2
        if positive or not len(self._closest.distance):
            return distance, error
        classes = np.stack([self._closest.first, self._closest.second], axis=1).ravel()
        exact = distance_of_rank(np.repeat(self._closest.distance, 2), classes, rank)
        return np.where(np.isinf(high), exact, distance), np.where(np.isinf(high), 0.0, error)

    def closest_negatives(self, count: int) -> ClosestPairs:
        """The first of the kept pairs."""
        return ClosestPairs(self._closest.distance[:count], self._closest.first[:count], self._closest.second[:count])

    def operating_distances(self) -> Floats:
        """The edges of all bins, and the distances of kept pairs."""
        distances = [self._distance(self._negative.closeness), self._closest.distance]
        distances.append(self._kept_positives if self._positive is None else self._distance(self._positive.closeness))
        return np.unique(np.concatenate(distances))

    def possible_error(self, thresholds: Floats) -> float:
        """Largest possible error of the interpolation between two edges."""
        closeness = self._closeness(thresholds)
        histograms = [self._negative] if self._positive is None else [self._negative, self._positive]
        return max(histogram.possible_error(closeness) for histogram in histograms)

    def _closeness(self, thresholds: Floats, strictly_below: bool = False) -> Floats:
        just_within = np.nextafter(thresholds, -np.inf) if strictly_below else thresholds
        return closeness_at(just_within, self.geometry, self.dimension)

    def _distance(self, closeness: Floats) -> Floats:
        return distance_at(closeness, self.geometry, self.dimension)


def _entries_above(block: Tensor, bound: float) -> tuple[Tensor, Tensor, Tensor]:
    """Values, rows and columns of the entries above `bound`."""
    flat = block.reshape(-1)
    above = flatnonzero(flat > bound)
    return flat.index_select(0, above), *_split(above, block.shape[1])


def _split(index: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of indices into a flattened block; by bits where possible, ten times as fast as by division."""
    if width & (width - 1) == 0:
        return index >> (width.bit_length() - 1), index & (width - 1)
    return index // width, index % width
