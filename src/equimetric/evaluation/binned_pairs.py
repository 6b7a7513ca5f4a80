"""Many pairs: counted in bins of equal width, the closest and the positive ones kept one by one."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from equimetric.evaluation.bins import BINS, Grid, Histogram, Survey, closeness, closeness_of_tile, distance
from equimetric.evaluation.exact import slices
from equimetric.evaluation.inputs import LabelledSets
from equimetric.evaluation.pair_counts import (
    ClassCounts,
    Closest,
    Counts,
    Floats,
    Integers,
    first_accepting,
    within,
)
from equimetric.evaluation.scan import Strip, Tile
from equimetric.ops.masks import flatnonzero

__all__ = ["PairHistograms"]

POSITIVES_KEPT = 2**22
BLOCK_ROWS, BLOCK_COLUMNS = 2**9, 2**10
"""Pairs counted at a time: they should stay in the cache, and so should the counts of their classes."""


class PairHistograms:
    """Negative pairs in bins of equal width, the closest of them one by one, positive pairs one by one if they fit."""

    def __init__(self, sets: LabelledSets, survey: Survey) -> None:
        self.sets, self.geometry, self.dimension = sets, sets.geometry, sets.queries.shape[1]
        self._with_gallery = sets.gallery is not None
        self._negative, self._farthest = self._histogram(survey.negative, survey.interest), survey.farthest
        self.keeps_positives = int(sets.relevant.sum()) // (1 if self._with_gallery else 2) <= POSITIVES_KEPT
        self._positive = None if self.keeps_positives else self._histogram(survey.positive, survey.interest)
        self._read_positives: list[tuple[Tensor, ...]] = []
        self._read_closest: list[tuple[Tensor, ...]] = []

    def _histogram(self, grid: Grid, interest: tuple[float, float]) -> Histogram:
        sets = self.sets
        most_pairs = int(torch.bincount(sets.query_classes).max()) * len(sets.gallery_classes)
        if self._with_gallery:
            most_pairs += int(torch.bincount(sets.gallery_classes).max()) * len(sets.query_classes)
        return Histogram(grid, interest, len(sets.class_labels), most_pairs, sets.queries.device)

    def collect(self, tile: Tile) -> None:
        """Keep the closest negative pairs and the positive pairs, count the negative ones for each class.

        Within one set, the other end of a pair has a row of its own.
        """
        close, items = closeness_of_tile(tile), torch.arange(len(self.sets.gallery_classes), device=tile.rows.device)
        self._count(close, tile.rows, items, both_ends=self._with_gallery)
        row, column = self._positive_pairs(tile.rows, items)
        self._take_positives(close[row, column], tile.rows[row], column, both_ends=self._with_gallery)

    def collect_strip(self, strip: Strip) -> None:
        """The same from a strip, which has the pairs among its own queries twice and those with later ones once."""
        own, queries, items = strip.rows.stop - strip.rows.start, strip.queries, strip.items
        self._count(strip.similarity[:, :own], queries, queries, both_ends=False)
        self._count(strip.similarity[:, own:], queries, items[own:], both_ends=True)
        row, column = self._positive_pairs(queries, strip.comparison.place - strip.rows.start)
        once = column > row
        row, column = row[once], column[once]
        self._take_positives(strip.similarity[row, column], queries[row], items[column], both_ends=True)

    def _count(self, close: Tensor, queries: Tensor, items: Tensor, *, both_ends: bool) -> None:
        """Count pairs (B, K) of queries (B,) and items (K,) from their rows or from both ends; keep the closest."""
        first, second = self.sets.query_classes[queries], self.sets.gallery_classes[items]
        row_counts, column_counts = self._negative.counts_of(first), self._negative.counts_of(second)
        kept: list[tuple[Tensor, ...]] = []
        for rows, columns in product(slices(len(first), BLOCK_ROWS), slices(len(second), BLOCK_COLUMNS)):
            block, width = close[rows, columns], columns.stop - columns.start
            if self._farthest == -math.inf:
                bins = self._negative.grid.bins(block)
                ends = [row_counts[rows, None], column_counts[columns]]
                closest = flatnonzero(bins == BINS - 1)
            else:
                near = flatnonzero(block > self._farthest)
                bins = self._negative.grid.bins(block.reshape(-1).index_select(0, near))
                ends = [
                    row_counts[rows].index_select(0, near // width),
                    column_counts[columns].index_select(0, near % width),
                ]
                closest = near[flatnonzero(bins == BINS - 1)]
            self._negative.count(bins, ends if both_ends else ends[:1])
            row, column = rows.start + closest // width, columns.start + closest % width
            keep = first[row] != second[column]
            if not both_ends:
                keep &= queries[row] < items[column]
            row, column = row[keep], column[keep]
            kept.append((close[row, column], first[row].int(), second[column].int()))
        # Joined, for a thousand small pieces kept among large temporary ones would hold the memory of these.
        self._read_closest += [_joined(kept)] if kept else []

    def _positive_pairs(self, queries: Tensor, column_of: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and columns of the pairs of queries (B,) and items of their classes; column_of (G,) may be below 0."""
        items = self.sets.relevant_columns(queries)
        row, place = (items >= 0).nonzero(as_tuple=True)
        column = column_of[items[row, place]]
        return row[column >= 0], column[column >= 0]

    def _take_positives(self, close: Tensor, queries: Tensor, items: Tensor, *, both_ends: bool) -> None:
        """Take positive pairs (P,) out of what was counted, from as many ends, and keep them if they fit."""
        exists = close > -torch.inf
        close, queries, items = close[exists], queries[exists], items[exists]
        classes, times = self.sets.query_classes[queries], 2 if both_ends else 1
        self._negative.count(self._negative.grid.bins(close), [self._negative.counts_of(classes)], times=-times)
        if self._positive is not None:
            self._positive.count(self._positive.grid.bins(close), [self._positive.counts_of(classes)], times=times)
            return
        once = slice(None) if both_ends else queries < items
        self._read_positives.append((close[once], classes[once].int()))

    def finish(self) -> None:
        """Sort what was kept and sum up what was counted."""
        self._negative.finish(self._negatives_of_class())
        self.negatives = int(self._negative.beyond_bin[0])
        self.negatives_of_class = self._negative.beyond_edge[:, 0].astype(np.int64)

        close, first, second = (part.cpu().numpy() for part in _joined(self._read_closest))
        self._read_closest.clear()
        order = np.argsort(-close)
        self._closest = Closest(self._distance(close[order].astype(np.float64)), first[order], second[order])
        self.exact_far = len(close) / max(1, self.negatives)
        # Seen from its two ends, a pair may by rounding lie on both sides of the cut: the kept pairs decide.
        self._negative.beyond_bin[-1] = len(self._closest.distance)
        self._negative.beyond_bin = np.maximum.accumulate(self._negative.beyond_bin[::-1])[::-1]

        if self._positive is not None:
            seen = torch.zeros(len(self.sets.class_labels), dtype=torch.int64, device=self.sets.relevant.device)
            seen.index_add_(0, self.sets.query_classes, self.sets.relevant)
            self._positive.finish(2 * seen if self._with_gallery else seen)
            self.positives = int(self._positive.beyond_bin[0])
            self.positives_of_class = self._positive.beyond_edge[:, 0].astype(np.int64) // 2
            return
        close, classes = (part.cpu().numpy() for part in _joined(self._read_positives))
        self._read_positives.clear()
        self.positives = len(close)
        self.positives_of_class = np.bincount(classes, minlength=len(self.sets.class_labels))
        order = np.argsort(-close)
        self._kept_positives, self._kept_classes = self._distance(close[order].astype(np.float64)), classes[order]

    def _negatives_of_class(self) -> Tensor:
        """Pairs with exactly one end in each class, (C,); in both orders of one set, absent pairs are absent."""
        sets, classes = self.sets, len(self.sets.class_labels)
        queries, items = (torch.bincount(of, minlength=classes) for of in (sets.query_classes, sets.gallery_classes))
        pairs = queries * (items.sum() - items)
        if self._with_gallery:
            pairs += items * (queries.sum() - queries)
        if sets.absent is not None:
            first, second = sets.query_classes[sets.absent[:, 0]], sets.gallery_classes[sets.absent[:, 1]]
            for end in (first, second) if self._with_gallery else (first,):
                pairs -= torch.bincount(end[first != second], minlength=classes)
        return pairs

    def accepted(self, thresholds: Floats, *, strictly: bool) -> Counts:
        """From the pairs kept one by one where they were, from the bins elsewhere."""
        close = self._closeness(thresholds, strictly)
        kept = within(self._closest.distance, thresholds, strictly)
        negative = np.where(close >= self._negative.closeness[-1], kept, self._negative.within(close))
        if self._positive is not None:
            return Counts(self._positive.within(close), negative)
        return Counts(within(self._kept_positives, thresholds, strictly), negative)

    def accepted_of_classes(self, thresholds: Floats, classes: slice, *, strictly: bool) -> Counts:
        """The same, from the edges kept for every class."""
        close = self._closeness(thresholds, strictly)
        negative = self._negative.within_of_classes(close, classes)
        kept = close >= self._negative.closeness[-1]
        if kept.any():
            table = ClassCounts(classes, int(kept.sum()))
            place = first_accepting(thresholds[kept], self._closest.distance, strictly)
            for end in (self._closest.first, self._closest.second):
                table.add(end, place)
            negative[:, kept] = table.accepted()
        if self._positive is not None:
            return Counts(self._positive.within_of_classes(close, classes) / 2, negative)
        table = ClassCounts(classes, len(thresholds))
        table.add(self._kept_classes, first_accepting(thresholds, self._kept_positives, strictly))
        return Counts(table.accepted(), negative)

    def negative_distance(self, rank: Integers) -> Floats:
        """Read off the kept pairs; beyond them, evenly spread within a bin."""
        beyond, grid = self._negative.beyond_bin, self._negative.grid
        # The last bin with more than `rank` pairs beyond its lower edge.
        place = np.clip(BINS - 1 - np.searchsorted(beyond[::-1], rank, "right"), 0, BINS - 2)
        content = np.maximum(beyond[place] - beyond[place + 1], 1)
        from_top = np.clip((rank - beyond[place + 1] + 0.5) / content, 0, 1)
        if self.geometry == "hamming":
            from_top = np.full_like(from_top, 0.5)
        interpolated = self._distance(grid.edges(place + 1) - from_top / grid.scale)
        if not len(self._closest.distance):
            return interpolated
        return np.where(
            rank < len(self._closest.distance),
            self._closest.distance[np.minimum(rank, len(self._closest.distance) - 1)],
            interpolated,
        )

    def closest_negatives(self, count: int) -> Closest:
        """Of those kept one by one."""
        return Closest(self._closest.distance[:count], self._closest.first[:count], self._closest.second[:count])

    def operating_distances(self) -> Floats:
        """The edges of all bins, and the pairs that were kept."""
        known = [self._distance(self._negative.closeness), self._closest.distance]
        known.append(self._kept_positives if self._positive is None else self._distance(self._positive.closeness))
        return np.unique(np.concatenate(known))

    def possible_error(self, thresholds: Floats) -> float:
        """The most that the interpolation between two edges can be wrong."""
        close = self._closeness(thresholds)
        histograms = [self._negative] if self._positive is None else [self._negative, self._positive]
        return max(histogram.possible_error(close) for histogram in histograms)

    def _closeness(self, thresholds: Floats, strictly: bool = False) -> Floats:
        just_within = np.nextafter(thresholds, -np.inf) if strictly else thresholds
        return closeness(just_within, self.geometry, self.dimension)

    def _distance(self, close: Floats) -> Floats:
        return distance(close, self.geometry, self.dimension)


def _joined(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(torch.cat(some) for some in zip(*parts, strict=True))
