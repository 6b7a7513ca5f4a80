"""Bins of pair distances, and the counts in them, overall and by class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.tiles import Tile
from equimetric.ops.blocks import slices

__all__ = ["BINS", "EdgeCounts", "Grid", "Histogram", "closeness_at", "distance_at", "tile_closeness"]

BINS = 2**14 + 1
"""Bins over the whole range; the last one holds the pairs that are kept singly."""
CLASS_TABLE_BYTES = 3 * 2**25
MAX_CLASS_EDGES, MIN_CLASS_EDGES = 2**12, 2**9
CLASS_CHUNK_SIZE = 1024


@dataclass(frozen=True)
class Grid:
    """Bins of equal width in closeness (larger is closer, see `tile_closeness`); the outer two have no end.

    low    lower edge of the first bin
    scale  bins per unit
    """

    low: float
    scale: float

    def bins(self, closeness: Tensor) -> Tensor:
        """⌊(closeness − low)·scale⌋ as 32-bit integers; monotone in closeness despite rounding."""
        return closeness.mul(self.scale).sub_(self.low * self.scale).clamp_(0, BINS - 1).int()

    def edges(self, bins: Integers) -> Floats:
        """Lower edges of some bins."""
        return self.low + bins / self.scale

    def select_bins(self, count: int, interest: tuple[float, float]) -> Integers:
        """About `count` bins at most, ascending, with the first and last: most of them in the range of interest."""
        inside = (np.array(interest) - self.low) * self.scale
        first, last = np.clip([math.floor(inside[0]), math.ceil(inside[1]) + 1], 0, BINS - 1).astype(np.int64)
        fine = np.linspace(first, last, min(last - first + 1, count - count // 8))
        coarse = np.linspace(0, BINS - 1, count // 8)
        return np.unique(np.concatenate([fine, coarse]).astype(np.int64))


class EdgeCounts:
    """Counts of pairs between some edges of a grid, for groups: classes or images.

    closeness  (E,) the edges, ascending
    """

    def __init__(self, grid: Grid, edge_bins: Integers, groups: int, count_type: torch.dtype, device: torch.device):
        self.closeness = grid.edges(edge_bins)
        self.table = torch.zeros(groups, len(edge_bins), dtype=count_type, device=device)
        index_type = torch.int32 if self.table.numel() < 2**31 else torch.int64
        edge_of_bin = np.searchsorted(edge_bins, np.arange(BINS), "right") - 1
        self._edge_of_bin = torch.from_numpy(np.maximum(edge_of_bin, 0)).to(device, index_type)
        self._start = torch.arange(groups, device=device).mul_(len(edge_bins)).to(index_type)

    def start_of(self, groups: Tensor) -> Tensor:
        """Where the counts of these groups begin in the table."""
        return self._start[groups]

    def count(self, bins: Tensor, ends: Sequence[Tensor], times: int = 1) -> None:
        """Count pairs in these bins, of any shape, for the groups at one or both ends.

        An end is `start_of` its groups, in a shape that expands to that of the bins.
        """
        index = self._edge_of_bin.index_select(0, bins.view(-1)).view_as(bins)
        increments = self.table.new_tensor(times).expand(bins.numel())
        for start in ends:
            self.table.view(-1).index_add_(0, (index + start).view(-1), increments)

    def count_marked(self, bins: Tensor, marked: Tensor, start: Tensor, times: int) -> None:
        """Count the marked ones of pairs in these bins for the groups at one end."""
        index = self._edge_of_bin.index_select(0, bins.reshape(-1)).view_as(bins)
        self.table.view(-1).index_add_(0, (index + start).view(-1), (marked * times).view(-1).to(self.table.dtype))

    def accumulate(self) -> NDArray[Any]:
        """(groups, E) pairs at least as close as each edge; the table is done."""
        beyond = _accumulate_from_top(self.table.cpu().numpy())
        del self.table
        return beyond


class Histogram:
    """Counts of pairs in the bins of a grid, and for every class between some of the edges.

    Every pair is counted twice, once from each end, for the class at that end.
    """

    def __init__(
        self, grid: Grid, interest: tuple[float, float], classes: int, max_pairs: int, device: torch.device
    ) -> None:
        """`max_pairs`, an upper bound for every class, decides the integer type of the counts."""
        self.grid = grid
        count_type = torch.int32 if max_pairs < 2**31 else torch.int64
        edges = CLASS_TABLE_BYTES // (count_type.itemsize * classes)
        edge_bins = grid.select_bins(min(max(edges, MIN_CLASS_EDGES), MAX_CLASS_EDGES), interest)
        self.closeness = grid.edges(np.arange(BINS))
        self.bins = torch.zeros(BINS, dtype=torch.int64, device=device)
        self.by_class = EdgeCounts(grid, edge_bins, classes, count_type, device)
        self.edge_closeness = self.by_class.closeness

    def count(self, bins: Tensor, ends: Sequence[Tensor], times: int = 1) -> None:
        """Count pairs in these bins for the classes at one or both ends: see `EdgeCounts.count`."""
        self.bins.add_(torch.bincount(bins.view(-1), minlength=BINS), alpha=times * len(ends))
        self.by_class.count(bins, ends, times)

    def partial(self) -> tuple[Tensor, Tensor]:
        """The counts of the pairs so far."""
        return self.bins, self.by_class.table

    def merge(self, partial: tuple[Tensor, Tensor]) -> None:
        """Add the counts of other pairs."""
        bins, table = partial
        self.bins += bins
        self.by_class.table += table

    def finish(self, pairs_of_class: Tensor, pairs: int) -> None:
        """Accumulate: pairs at least as close as the lower edge of each bin, each once; by class from each end.

        The first bin takes the remaining pairs: those of each class, (C,), from its end, and all of them are given.
        """
        self.beyond_bin = _accumulate_from_top(self.bins.cpu().numpy().astype(np.float64)) / 2
        self.beyond_edge = self.by_class.accumulate()
        self.beyond_bin[0] = pairs
        self.beyond_edge[:, 0] = pairs_of_class.cpu().numpy()
        del self.bins

    def within(self, closeness: Floats) -> Floats:
        """Pairs at least that close, (G,)."""
        return _interpolate(self.closeness, self.beyond_bin, closeness)

    def within_by_class(self, closeness: Floats, classes: slice) -> Floats:
        """The same for each class of a range, (C, G)."""
        return _interpolate(self.edge_closeness, self.beyond_edge[classes], closeness)

    def closeness_of_rank(self, rank: Integers) -> tuple[Floats, Floats]:
        """Lower and upper edge, (C,), between which the pair of each class of that rank, closest first, lies.

        The upper edge is infinite for a pair closer than all edges.
        """
        beyond = self.beyond_edge
        index = (beyond > rank[:, None]).sum(axis=1) - 1
        return self.edge_closeness[np.maximum(index, 0)], np.append(self.edge_closeness, np.inf)[index + 1]

    def possible_error(self, closeness: Floats) -> float:
        """Largest share of a class's pairs between two adjacent edges that enclose one of the closenesses."""
        edges = self.edge_closeness
        between = closeness[(closeness < edges[-1]) & ~np.isin(closeness, edges)]
        index = np.unique(np.clip(np.searchsorted(edges, between, "right") - 1, 0, len(edges) - 2))
        if not len(index):
            return 0.0
        largest = 0.0
        for block in slices(len(self.beyond_edge), CLASS_CHUNK_SIZE):
            beyond = self.beyond_edge[block]
            content = beyond[:, index] - beyond[:, index + 1]
            largest = max(largest, float((content.max(axis=1) / np.maximum(beyond[:, 0], 1)).max()))
        return largest


def _accumulate_from_top(counts: NDArray[Any]) -> NDArray[Any]:
    """Counts of bins → counts of each bin and all closer ones, along the last axis and in place."""
    reverse = counts[..., ::-1]
    np.cumsum(reverse, axis=-1, out=reverse)
    return counts


def _interpolate(edges: Floats, beyond: NDArray[Any], closeness: Floats) -> Floats:
    """Pairs at least as close as each of G closenesses, (…, G), from the counts at the edges; linear in between."""
    index = np.clip(np.searchsorted(edges, closeness, "right") - 1, 0, len(edges) - 2)
    share = np.clip((edges[index + 1] - closeness) / (edges[index + 1] - edges[index]), 0, 1)
    upper: Floats = beyond[..., index + 1].astype(np.float64)
    return upper + share * (beyond[..., index] - upper)


def tile_closeness(tile: Tile) -> Tensor:
    """A decreasing function of the distance, the same for all rows: the similarity, or for Euclidean −distance."""
    return -tile.distance() if tile.matrix.geometry == "euclidean" else tile.similarity


def closeness_at(distance: Floats, geometry: str, dimension: int) -> Floats:
    """The closeness of a pair at this distance; for Hamming between two distances, where no pair lies."""
    if geometry == "cosine":
        return np.where(distance < 0, np.inf, 1 - np.square(distance) / 2)
    if geometry == "hamming":
        return dimension - 2 * np.floor(distance) - 1
    return -distance


def distance_at(closeness: Floats, geometry: str, dimension: int) -> Floats:
    """The distance of a pair at this closeness."""
    if geometry == "cosine":
        return np.sqrt(np.maximum(2 - 2 * closeness, 0))
    if geometry == "hamming":
        return (dimension - closeness) / 2
    return -closeness
