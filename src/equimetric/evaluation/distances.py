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
* Positive pairs are kept where they are few enough, else counted in bins of their own.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.exact import slices
from equimetric.evaluation.families import Collector
from equimetric.evaluation.inputs import LabelledSets
from equimetric.evaluation.scan import Comparison, Tile, scan
from equimetric.seeding import derive_seed

__all__ = ["Closest", "Counts", "EveryPair", "PairDistances", "PairHistograms", "pair_distances"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EVERY_PAIR = 2**23
"""Up to this many pairs, all of them are kept: 16 bytes each, and 8 more once sorted."""
POSITIVES_KEPT = 2**22
CLOSEST_KEPT = 2**22
CLOSEST_SHARE = 1.5e-3
"""Share of the negative pairs kept one by one: false accept rates up to 1e-3, should the survey be wrong by a third."""
BINS = 2**14 + 1
"""Bins of the whole range, numbered by 16-bit integers; the last one holds the pairs kept one by one."""
LAST_BIN_IN_ANY_OF_FOUR = sum((BINS - 1) << (16 * place) for place in range(4))
CLASS_TABLE_BYTES = 3 * 2**25
MOST_CLASS_EDGES, LEAST_CLASS_EDGES = 2**12, 2**9
SURVEYED_PAIRS = 2**23
SURVEYED_ROWS = (16, 512)
SURVEY_MARGIN = 1.5
"""By how much the survey's false accept rates are taken larger and smaller when the range of interest is bracketed."""
DEFAULT_FAR = (1e-2, 1e-1)
"""The false accept rates between which consistency is measured if nothing else is said."""
BLOCK_PAIRS = 2**20
"""Pairs counted at a time: they should stay in the cache."""


@dataclass(frozen=True)
class Counts:
    """Pairs within each of G thresholds, (G,) overall or (C, G) by class; fractions where a bin was interpolated."""

    positive: Floats
    negative: Floats


@dataclass(frozen=True)
class Closest:
    """Negative pairs one by one, closest first: their distances and the classes at both ends, each (P,)."""

    distance: Floats
    first: NDArray[np.int32]
    second: NDArray[np.int32]


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

    def prepare(self, comparison: Comparison) -> None:
        """Keep every pair if they are few; else survey where the bins should lie."""
        pairs = len(self.sets.queries) * len(self.sets.gallery_classes)
        self.is_exact = (pairs // 2 if self.sets.gallery is None else pairs) <= EVERY_PAIR
        if self.is_exact:
            self.distances = EveryPair(self.sets)
        else:
            self.distances = PairHistograms(self.sets, _survey(self.sets, comparison, self.options))

    def collect(self, tile: Tile) -> None:
        """Read one tile."""
        self.distances.collect(tile)

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
    sets: LabelledSets, *, block_rows: int | None = None, progress: bool = False, **options: Any
) -> PairDistances:
    """The distances of all pairs of a labelled set, by a scan of its own."""
    collector = PairDistances(sets, options)
    scan(Comparison.of(sets), [collector], block_rows=block_rows, progress=progress)
    return collector


class EveryPair:
    """The distance and the two classes of every pair."""

    keeps_positives = True
    exact_far = 1.0

    def __init__(self, sets: LabelledSets) -> None:
        self.sets = sets
        self._read: list[tuple[Floats, NDArray[np.int32], NDArray[np.int32]]] = []

    def collect(self, tile: Tile) -> None:
        """Keep the tile's pairs, in the order of the tile."""
        exists = tile.similarity > -torch.inf
        if self.sets.gallery is None:
            columns = torch.arange(exists.shape[1], device=exists.device)
            exists &= columns > tile.rows[:, None]
        row, column = exists.nonzero(as_tuple=True)
        distance = tile.comparison.distance(tile.similarity.double(), tile.rows)[row, column]
        self._read.append(
            (
                distance.cpu().numpy(),
                self.sets.query_classes[tile.rows[row]].int().cpu().numpy(),
                self.sets.gallery_classes[column].int().cpu().numpy(),
            )
        )

    def finish(self) -> None:
        """Join the tiles, sort the distances, count the pairs of each class."""
        self._distance, self._first, self._second = (np.concatenate(parts) for parts in zip(*self._read, strict=True))
        self._read.clear()
        same = self._first == self._second
        self._positive, self._negative = np.sort(self._distance[same]), np.sort(self._distance[~same])
        self.positives, self.negatives = len(self._positive), len(self._negative)
        of_all = self.accepted_of_classes(np.array([np.inf]), slice(0, len(self.sets.class_labels)), strictly=False)
        self.positives_of_class = of_all.positive[:, 0].astype(np.int64)
        self.negatives_of_class = of_all.negative[:, 0].astype(np.int64)

    def accepted(self, thresholds: Floats, *, strictly: bool) -> Counts:
        """Places in the sorted distances."""
        return Counts(_within(self._positive, thresholds, strictly), _within(self._negative, thresholds, strictly))

    def accepted_of_classes(self, thresholds: Floats, classes: slice, *, strictly: bool) -> Counts:
        """Count every pair at the first threshold that accepts it, for the classes at both of its ends."""
        tables = [_ClassCounts(classes, len(thresholds)) for _ in range(2)]
        for pairs in slices(len(self._distance), BLOCK_PAIRS):
            first, second = self._first[pairs], self._second[pairs]
            place = _first_accepting(thresholds, self._distance[pairs], strictly)
            same = first == second
            tables[0].add(first[same], place[same])
            for end in (first, second):
                tables[1].add(end[~same], place[~same])
        return Counts(*(table.accepted() for table in tables))

    def negative_distance(self, rank: Integers) -> Floats:
        """Read off the sorted distances."""
        return self._negative[rank]

    def closest_negatives(self, count: int) -> Closest:
        """Sort no more than needed."""
        within = self._negative[min(count, self.negatives) - 1]
        pairs = np.flatnonzero((self._first != self._second) & (self._distance <= within))
        pairs = pairs[np.argsort(self._distance[pairs], kind="stable")][:count]
        return Closest(self._distance[pairs], self._first[pairs], self._second[pairs])

    def operating_distances(self) -> Floats:
        """All distinct distances."""
        return np.unique(np.concatenate([self._positive, self._negative]))

    def possible_error(self, thresholds: Floats) -> float:  # noqa: ARG002
        """Nothing is interpolated."""
        return 0.0


@dataclass(frozen=True)
class Grid:
    """Bins of equal width in closeness (larger is closer, see `_closeness`); the first and last reach on without end.

    low    where the first bin starts
    scale  bins per unit
    """

    low: float
    scale: float

    def bins(self, close: Tensor) -> Tensor:
        """⌊(closeness − low)·scale⌋ as 16-bit integers; rising with closeness whatever the rounding."""
        offset = torch.tensor(-self.low * self.scale, dtype=close.dtype, device=close.device)
        return torch.add(offset, close, alpha=self.scale).clamp_(0, BINS - 1).to(torch.int16)

    def edges(self, bins: Integers) -> Floats:
        """Lower edges of some bins."""
        return self.low + bins / self.scale

    def some_bins(self, count: int, interest: tuple[float, float]) -> Integers:
        """At most about `count` bins, ascending, first and last included: most of them in the range of interest."""
        inside = (np.array(interest) - self.low) * self.scale
        first, last = np.clip([math.floor(inside[0]), math.ceil(inside[1]) + 1], 0, BINS - 1).astype(np.int64)
        finest = np.linspace(first, last, min(last - first + 1, count - count // 8))
        elsewhere = np.linspace(0, BINS - 1, count // 8)
        return np.unique(np.concatenate([finest, elsewhere]).astype(np.int64))


@dataclass(frozen=True)
class Survey:
    """Where the bins should lie: those of negative pairs up to a cut, those of positive pairs all over.

    interest  two closenesses between which consistency is measured
    """

    negative: Grid
    positive: Grid
    interest: tuple[float, float]


class _Histogram:
    """Counts of pairs in the bins of a grid, and for every class between some of their edges."""

    def __init__(
        self, grid: Grid, edges: Integers, classes: int, count_type: torch.dtype, device: torch.device
    ) -> None:
        self.grid, self.edge_bins = grid, torch.from_numpy(edges).to(device)
        self.closeness, self.edge_closeness = grid.edges(np.arange(BINS)), grid.edges(edges)
        self.bins = torch.zeros(BINS, dtype=torch.int64, device=device)
        self._before = torch.zeros(BINS + 1, dtype=torch.int64, device=device)
        self._piece_ends = torch.cat([self.edge_bins, self.edge_bins.new_tensor([BINS])])
        self.table = torch.zeros(classes, len(edges), dtype=count_type, device=device)

    def add(self, number: int, counts: Tensor) -> None:
        """Counts of the bins, of one class."""
        self.bins += counts
        self.add_to_class(number, counts)

    def add_to_class(self, number: int, counts: Tensor) -> None:
        """Counts of the bins that are not to be counted for all classes together."""
        torch.cumsum(counts, 0, out=self._before[1:])
        before = self._before[self._piece_ends]
        self.table[number] += before[1:] - before[:-1]

    def finish(self, ends: int) -> None:
        """Sum up: pairs at least as close as the lower edge of each bin; each was counted `ends` times for `bins`."""
        self.beyond_bin = _from_the_top(self.bins.cpu().numpy().astype(np.float64)) / ends
        self.beyond_edge = _from_the_top(self.table.cpu().numpy())
        del self.bins, self.table

    def within(self, close: Floats) -> Floats:
        """Pairs at least that close, (G,)."""
        return _interpolated(self.closeness, self.beyond_bin, close)

    def within_of_classes(self, close: Floats, classes: slice) -> Floats:
        """The same for each of some classes, (C, G)."""
        return _interpolated(self.edge_closeness, self.beyond_edge[classes], close)

    def possible_error(self, close: Floats) -> float:
        """The largest share of a class's pairs between two of its edges that have one of the closenesses in between."""
        edges = self.edge_closeness
        between = close[(close < edges[-1]) & ~np.isin(close, edges)]
        place = np.unique(np.clip(np.searchsorted(edges, between, "right") - 1, 0, len(edges) - 2))
        if not len(place):
            return 0.0
        content = self.beyond_edge[:, place] - self.beyond_edge[:, place + 1]
        return float((content.max(axis=1) / np.maximum(self.beyond_edge[:, 0], 1)).max())


class PairHistograms:
    """Negative pairs in bins of equal width, the closest of them one by one, positive pairs one by one if they fit."""

    def __init__(self, sets: LabelledSets, survey: Survey) -> None:
        self.sets, self.geometry, self.dimension = sets, sets.geometry, sets.queries.shape[1]
        self._with_gallery = sets.gallery is not None
        self._ends = 1 if self._with_gallery else 2
        self._negative = self._histogram(survey.negative, survey.interest)
        self.keeps_positives = int(sets.relevant.sum()) // self._ends <= POSITIVES_KEPT
        self._positive = None if self.keeps_positives else self._histogram(survey.positive, survey.interest)
        self._read_positives: list[tuple[Tensor, Tensor]] = []
        self._read_closest: list[tuple[Tensor, Tensor, Tensor]] = []
        self._by_class = sets.gallery_classes.argsort(stable=True)
        self._class_sizes = torch.bincount(sets.gallery_classes, minlength=len(sets.class_labels))
        self._class_ends = self._class_sizes.cumsum(0)
        edges = self._negative.edge_bins
        self._place_of_bin = torch.searchsorted(edges, torch.arange(BINS, device=edges.device), right=True) - 1

    def _histogram(self, grid: Grid, interest: tuple[float, float]) -> _Histogram:
        sets, classes = self.sets, len(self.sets.class_labels)
        pairs = int(torch.bincount(sets.query_classes).max()) * len(sets.gallery_classes)
        if self._with_gallery:
            pairs += int(torch.bincount(sets.gallery_classes).max()) * len(sets.query_classes)
        count_type = torch.int32 if pairs < 2**31 else torch.int64
        edges = CLASS_TABLE_BYTES // (count_type.itemsize * classes)
        chosen = grid.some_bins(min(max(edges, LEAST_CLASS_EDGES), MOST_CLASS_EDGES), interest)
        return _Histogram(grid, chosen, classes, count_type, sets.queries.device)

    def collect(self, tile: Tile) -> None:
        """Keep the closest negative pairs and the positive pairs, count the negative ones for each class."""
        close = _closeness_of_tile(tile)
        classes = self.sets.query_classes[tile.rows]
        rows_at_a_time = max(1, BLOCK_PAIRS // close.shape[1])
        pieces = _pieces(classes, rows_at_a_time)
        row, positive = self._collect_positives(tile, close, classes)
        positive_bins = self._negative.grid.bins(positive).long()
        until = torch.searchsorted(row, torch.tensor([end for _, _, end in pieces], device=row.device)).tolist()
        closest = []
        for (number, start, end), first, last in zip(pieces, [0, *until], until, strict=False):
            if start % rows_at_a_time == 0:
                # A block that stays in the cache while its pieces, each of one class, are counted.
                bins = self._negative.grid.bins(close[start : start + rows_at_a_time])
                closest.append(_places_of_last_bin(bins) + start * close.shape[1])
                if self._with_gallery:
                    self._count_for_gallery_classes(bins)
                block = start
            counts = torch.bincount(bins[start - block : end - block].view(-1), minlength=BINS)
            taken_out = torch.full_like(positive_bins[first:last], -1)
            self._negative.add(number, counts.index_add_(0, positive_bins[first:last], taken_out))
            if self._with_gallery:
                again = torch.zeros_like(counts).index_add_(0, positive_bins[first:last], taken_out)
                self._negative.add_to_class(number, again)
            if self._positive is not None:
                in_bins = self._positive.grid.bins(positive[first:last])
                self._positive.add(number, torch.bincount(in_bins, minlength=BINS))
        self._collect_closest(tile, close, classes, torch.cat(closest))

    def _collect_positives(self, tile: Tile, close: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, ascending, and closeness of all positive pairs of a tile; keep them if they fit."""
        sizes = self._class_sizes[classes]
        row = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
        within = torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]
        column = self._by_class[(self._class_ends - self._class_sizes)[classes][row] + within]
        positive = close[row, column]
        exists = positive > -torch.inf
        row, column, positive = row[exists], column[exists], positive[exists]
        if self.keeps_positives:
            once = slice(None) if self._with_gallery else column > tile.rows[row]
            self._read_positives.append((positive[once], classes[row[once]].int()))
        return row, positive

    def _collect_closest(self, tile: Tile, close: Tensor, classes: Tensor, place: Tensor) -> None:
        """Keep the negative pairs among the closest pairs of a tile, each once."""
        row, column = place // close.shape[1], place % close.shape[1]
        first, second = classes[row], self.sets.gallery_classes[column]
        keep = first != second
        if not self._with_gallery:
            keep &= column > tile.rows[row]
        self._read_closest.append((close.view(-1)[place[keep]], first[keep].int(), second[keep].int()))

    def _count_for_gallery_classes(self, bins: Tensor) -> None:
        """Count all pairs for the class at their other end too; positive pairs are taken out with their own class."""
        table = self._negative.table
        place = self._place_of_bin[bins.long()] + table.shape[1] * self.sets.gallery_classes
        table.view(-1).scatter_add_(0, place.view(-1), table.new_ones(1).expand(place.numel()))

    def finish(self) -> None:
        """Sort what was kept and sum up what was counted."""
        self._forget_absent_pairs()
        self._negative.finish(self._ends)
        self.negatives = int(self._negative.beyond_bin[0])
        self.negatives_of_class = self._negative.beyond_edge[:, 0].astype(np.int64)

        close, first, second = (torch.cat(parts).cpu().numpy() for parts in zip(*self._read_closest, strict=True))
        self._read_closest.clear()
        order = np.argsort(-close)
        self._closest = Closest(self._distance(close[order].astype(np.float64)), first[order], second[order])
        self.exact_far = len(close) / max(1, self.negatives)
        # Seen from its two ends, a pair may by rounding lie on both sides of the cut: the kept pairs decide.
        self._negative.beyond_bin[-1] = len(self._closest.distance)
        self._negative.beyond_bin = np.maximum.accumulate(self._negative.beyond_bin[::-1])[::-1]

        if self._positive is not None:
            self._positive.finish(self._ends)
            self.positives = int(self._positive.beyond_bin[0])
            self.positives_of_class = self._positive.beyond_edge[:, 0].astype(np.int64) // self._ends
            return
        close, classes = (torch.cat(parts).cpu().numpy() for parts in zip(*self._read_positives, strict=True))
        self._read_positives.clear()
        self.positives = len(close)
        self.positives_of_class = np.bincount(classes, minlength=len(self.sets.class_labels))
        order = np.argsort(-close)
        self._kept_positives, self._kept_classes = self._distance(close[order].astype(np.float64)), classes[order]

    def _forget_absent_pairs(self) -> None:
        """Pairs that do not exist have closeness −∞ and were counted in the first bin."""
        sets, histogram = self.sets, self._negative
        absent = sets.absent if sets.absent is not None else sets.query_classes.new_empty(0, 2)
        if not self._with_gallery:
            itself = torch.arange(len(sets.queries), device=absent.device)[:, None].expand(-1, 2)
            absent = torch.cat([itself, absent])
        histogram.bins[0] -= len(absent)
        histogram.table[:, 0] -= torch.bincount(sets.query_classes[absent[:, 0]], minlength=len(histogram.table))
        if self._with_gallery:
            histogram.table[:, 0] -= torch.bincount(sets.gallery_classes[absent[:, 1]], minlength=len(histogram.table))

    def accepted(self, thresholds: Floats, *, strictly: bool) -> Counts:
        """From the pairs kept one by one where they were, from the bins elsewhere."""
        close = self._closeness(thresholds, strictly)
        kept = _within(self._closest.distance, thresholds, strictly)
        negative = np.where(close >= self._negative.closeness[-1], kept, self._negative.within(close))
        if self._positive is not None:
            return Counts(self._positive.within(close), negative)
        return Counts(_within(self._kept_positives, thresholds, strictly), negative)

    def accepted_of_classes(self, thresholds: Floats, classes: slice, *, strictly: bool) -> Counts:
        """The same, from the edges kept for every class."""
        close = self._closeness(thresholds, strictly)
        negative = self._negative.within_of_classes(close, classes)
        kept = close >= self._negative.closeness[-1]
        if kept.any():
            table = _ClassCounts(classes, int(kept.sum()))
            place = _first_accepting(thresholds[kept], self._closest.distance, strictly)
            for end in (self._closest.first, self._closest.second):
                table.add(end, place)
            negative[:, kept] = table.accepted()
        if self._positive is not None:
            return Counts(self._positive.within_of_classes(close, classes) / self._ends, negative)
        table = _ClassCounts(classes, len(thresholds))
        table.add(self._kept_classes, _first_accepting(thresholds, self._kept_positives, strictly))
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

    def _closeness(self, distance: Floats, strictly: bool = False) -> Floats:
        just_within = np.nextafter(distance, -np.inf) if strictly else distance
        return _closeness(just_within, self.geometry, self.dimension)

    def _distance(self, closeness: Floats) -> Floats:
        return _distance(closeness, self.geometry, self.dimension)


class _ClassCounts:
    """Pairs counted at the first of G thresholds that accepts them, for some consecutive classes."""

    def __init__(self, classes: slice, thresholds: int) -> None:
        self.classes, self.width = classes, thresholds + 1
        self.counts = np.zeros((classes.stop - classes.start) * self.width, np.int64)

    def add(self, classes: NDArray[np.int32], place: Integers) -> None:
        inside = (classes >= self.classes.start) & (classes < self.classes.stop) & (place < self.width - 1)
        index = (classes[inside].astype(np.int64) - self.classes.start) * self.width + place[inside]
        self.counts += np.bincount(index, minlength=len(self.counts))

    def accepted(self) -> Floats:
        return self.counts.reshape(-1, self.width)[:, :-1].cumsum(axis=1).astype(np.float64)


def _pieces(classes: Tensor, rows_at_a_time: int) -> list[tuple[int, int, int]]:
    """(class, first row, end): rows of one class that follow each other, none across the end of a block."""
    numbers, lengths = torch.unique_consecutive(classes, return_counts=True)
    pieces, start = [], 0
    for number, length in zip(numbers.tolist(), lengths.tolist(), strict=True):
        end = start + length
        while start < end:
            stop = min(end, (start // rows_at_a_time + 1) * rows_at_a_time)
            pieces.append((number, start, stop))
            start = stop
    return pieces


def _places_of_last_bin(bins: Tensor) -> Tensor:
    """Where the last bin stands in a block, counted along its rows; found four at a time by a bit no other bin has."""
    flat = bins.view(-1)
    fours = len(flat) // 4
    some = (flat[: 4 * fours].view(torch.int64) & LAST_BIN_IN_ANY_OF_FOUR).nonzero()
    rest = torch.arange(4 * fours, len(flat), device=flat.device)
    place = torch.cat([(4 * some + torch.arange(4, device=flat.device)).flatten(), rest])
    return place[flat[place] == BINS - 1]


def _within(ascending: Floats, thresholds: Floats, strictly: bool) -> Floats:
    return np.searchsorted(ascending, thresholds, "left" if strictly else "right").astype(np.float64)


def _first_accepting(ascending_thresholds: Floats, distance: Floats, strictly: bool) -> Integers:
    return np.searchsorted(ascending_thresholds, distance, "right" if strictly else "left")


def _from_the_top(counts: NDArray[Any]) -> NDArray[Any]:
    """Counts of bins → counts of each bin and all behind it, along the last axis and in place."""
    reverse = counts[..., ::-1]
    np.cumsum(reverse, axis=-1, out=reverse)
    return counts


def _interpolated(edges: Floats, beyond: NDArray[Any], close: Floats) -> Floats:
    """Pairs at least as close as each of G closenesses, (…, G), from those beyond each edge; linear in between."""
    place = np.clip(np.searchsorted(edges, close, "right") - 1, 0, len(edges) - 2)
    share = np.clip((edges[place + 1] - close) / (edges[place + 1] - edges[place]), 0, 1)
    upper: Floats = beyond[..., place + 1].astype(np.float64)
    return upper + share * (beyond[..., place] - upper)


def _closeness_of_tile(tile: Tile) -> Tensor:
    """What falls as the distance rises, of all pairs alike: the similarity, where it is that for all rows alike."""
    return -tile.distance() if tile.comparison.geometry == "euclidean" else tile.similarity


def _closeness(distance: Floats, geometry: str, dimension: int) -> Floats:
    """The closeness at which a pair has this distance; between two Hamming distances, where no pair lies."""
    if geometry == "cosine":
        return np.where(distance < 0, np.inf, 1 - np.square(distance) / 2)
    if geometry == "hamming":
        return dimension - 2 * np.floor(distance) - 1
    return -distance


def _distance(closeness: Floats, geometry: str, dimension: int) -> Floats:
    if geometry == "cosine":
        return np.sqrt(np.maximum(2 - 2 * closeness, 0))
    if geometry == "hamming":
        return (dimension - closeness) / 2
    return -closeness


def _survey(sets: LabelledSets, comparison: Comparison, options: Mapping[str, Any]) -> Survey:
    """Look at the pairs of some random rows to see where the bins should lie."""
    gallery = len(sets.gallery_classes)
    few, many = SURVEYED_ROWS
    count = min(len(sets.queries), max(few, min(many, SURVEYED_PAIRS // gallery)))
    generator = torch.Generator().manual_seed(derive_seed(0, "survey of distances"))
    rows = torch.randperm(len(sets.queries), generator=generator)[:count].to(sets.queries.device)
    close = _closeness_of_tile(Tile(comparison, rows, comparison.similarity(rows)))
    exists, same = close > -torch.inf, sets.query_classes[rows, None] == sets.gallery_classes
    positive, negative = (close[exists & kind].double().cpu().numpy() for kind in (same, ~same))
    if not len(negative):
        raise EquimetricError("there is no negative pair; thresholds need pairs of one class and of two classes")

    pairs = len(sets.queries) * gallery // (2 if sets.gallery is None else 1)
    smallest, largest = options.get("calibration_far") or DEFAULT_FAR
    closest = max(CLOSEST_SHARE, options.get("closest_share", 0.0))
    shares = min(closest, CLOSEST_KEPT / pairs), smallest / SURVEY_MARGIN, min(1.0, largest * SURVEY_MARGIN)
    cut, *interest = _upper_quantiles(negative, *shares)
    if options.get("calibration_range") is not None:
        given = np.asarray(options["calibration_range"], np.float64)
        interest = _closeness(given, sets.geometry, sets.queries.shape[1]).tolist()
    low, high = float(negative.min()), float(max(positive.max(initial=cut), negative.max()))
    if sets.geometry == "hamming":
        # One bin for each value D − 2h, its edges between the values: nothing is interpolated.
        dimension = sets.queries.shape[1]
        below_cut, all_over = (Grid(top - 1 - 2 * (BINS - 1), 0.5) for top in (cut, dimension))
        return Survey(below_cut, all_over, (-dimension, dimension))
    low -= 0.1 * (high - low)
    return Survey(_grid(low, cut), _grid(low, high), (interest[1], interest[0]))


def _grid(low: float, high: float) -> Grid:
    """Bins from low to high; not narrower than the rounding of float32, or they would be bins of noise."""
    rounding = float(np.finfo(np.float32).eps) * max(abs(low), abs(high), 1e-30)
    width = max((high - low) / (BINS - 1), 4 * rounding)
    return Grid(float(np.float32(low)), float(np.float32(1 / width)))


def _upper_quantiles(values: Floats, *shares: float) -> list[float]:
    """The values that these shares of all values exceed."""
    places = [min(len(values) - 1, max(0, len(values) - 1 - int(share * len(values)))) for share in shares]
    partitioned = np.partition(values, places)
    return [float(partitioned[place]) for place in places]
