"""Items that may be among the k nearest of some queries, or within a threshold, from bounds of their affinities.

A tile is read once: the largest product of every group of items is compared with the query's lower bound, and only the
groups that reach it are searched. The result are *candidates*, a superset of the matches; exact scores decide.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.gallery.candidates import Candidates, padding_value
from equimetric.gallery.single_scan import scan_single
from equimetric.gallery.tiles import TileProducts

__all__ = ["TooManyCandidatesError", "candidates_within", "nearest_candidates"]

MIN_TILE_ITEMS = 4096
"""Items of a tile, at least."""
TILE_PRODUCTS = 2**18
"""Products of a tile: few enough for the cache, and enough to outweigh the call overhead of a tile."""
MAX_TILE_ITEMS = 2**16
GROUP = 64
"""Items whose largest product is compared with a lower bound; a tile has whole groups."""
MAX_CANDIDATES = 2**22
"""Candidates of a batch of queries, at most; a single query may have more."""


class TooManyCandidatesError(Exception):
    """A batch of queries has too many candidates and must be split."""


def candidates_within(products: TileProducts, live: NDArray[np.bool_], lower_bounds: NDArray[np.float64]) -> Candidates:
    """All pairs whose affinity may be as large as their query's lower bound (Q,)."""
    tiles = _tiles(len(live), len(lower_bounds))
    if len(lower_bounds) == 1:
        return scan_single(products, live, tiles, lower_bound=float(lower_bounds[0]))
    candidates = list[Candidates]()
    for first, last in tiles:
        candidates.append(ProductTile.read(products, live, first, last).above(lower_bounds))
        _check_count(candidates)
    return Candidates.join(candidates)


def nearest_candidates(products: TileProducts, live: NDArray[np.bool_], k: int) -> Candidates:
    """All pairs that may be among the k items of the largest affinities of their query; k live items exist.

    A lower bound is an affinity that k items certainly have. It rises during the scan, after 1, 2, 4, 8 … tiles.
    """
    queries, candidates, next_update = len(products.step), list[Candidates](), 1
    if queries == 1:
        return scan_single(products, live, _tiles(len(live), queries), k=k)
    lower_bounds = np.full(queries, -np.inf)
    for count, (first, last) in enumerate(_tiles(len(live), queries), 1):
        tile = ProductTile.read(products, live, first, last)
        if count == 1:
            lower_bounds = tile.lower_bounds(k)
        candidates.append(tile.above(lower_bounds))
        del tile  # keep at most one tile in memory
        if count == next_update and last < len(live):
            next_update *= 2
            merged = Candidates.join(candidates)
            lower_bounds = np.maximum(lower_bounds, merged.kth_low(queries, k))
            candidates = [merged.above(lower_bounds)]
        _check_count(candidates)
    merged = Candidates.join(candidates)
    return merged.above(np.maximum(lower_bounds, merged.kth_low(queries, k)))


@dataclass(frozen=True)
class ProductTile:
    """Products of all queries with some items.

    first    the first item
    groups   (Q, G, GROUP) products; those of removed items, and of none in the last group, are the smallest number
    largest  (Q, G) of every group
    step     (Q,) affinity of 1 in a tile
    error    (Q,) bound of the difference between products and affinities
    """

    first: int
    groups: Tensor
    largest: Tensor
    step: NDArray[np.float64]
    error: NDArray[np.float64]

    @classmethod
    def read(cls, products: TileProducts, live: NDArray[np.bool_], first: int, last: int) -> "ProductTile":
        """The tile of items from `first` to `last`."""
        tile, live_tile = products.tile(first, last), live[first:last]
        padding = padding_value(np.float32 if tile.is_floating_point() else np.int32)
        if not live_tile.all():
            tile[:, torch.from_numpy(~live_tile)] = padding
        num_padding = (first - last) % GROUP
        if num_padding:
            tile = torch.constant_pad_nd(tile, (0, num_padding), padding)
        groups = tile.view(len(tile), -1, GROUP)
        return cls(first, groups, groups.amax(dim=2), products.step, products.error(first, last))

    def lower_bounds(self, k: int) -> NDArray[np.float64]:
        """(Q,) affinities that k of these items have, for every query; −∞ or almost where there are fewer."""
        values = self.largest if k <= self.largest.shape[1] else self.groups.flatten(1)
        if k > values.shape[1]:
            return np.full(len(values), -np.inf)
        kth: NDArray[np.float64] = values.topk(k, dim=1).values[:, -1].numpy() * self.step - self.error
        return kth

    def above(self, lower_bounds: NDArray[np.float64]) -> Candidates:
        """The live pairs whose affinity may be as large as their query's lower bound."""
        min_product = _floor((lower_bounds - self.error) / self.step, self.groups.dtype)
        groups = np.flatnonzero((self.largest >= torch.from_numpy(min_product)[:, None]).numpy())
        values, query = self.groups.view(-1, GROUP).numpy()[groups], groups // self.largest.shape[1]
        positions = np.flatnonzero(values >= min_product[query, None])
        row, member = np.divmod(positions, GROUP)
        query, error = query[row], self.error[query[row]]
        item = groups[row] % self.largest.shape[1] * GROUP + member + self.first
        estimate = values.reshape(-1)[positions] * self.step[query]
        return Candidates(query, item, estimate - error, estimate + error)


def _check_count(candidates: list[Candidates]) -> None:
    if sum(len(part.query) for part in candidates) > MAX_CANDIDATES:
        raise TooManyCandidatesError


def _floor(values: NDArray[np.float64], dtype: torch.dtype) -> NDArray[np.float32] | NDArray[np.int32]:
    """(Q,) the largest values of a tile's dtype that are ≤ `values` and above the padding."""
    if dtype.is_floating_point:
        ends = np.finfo(np.float32)
        rounded = np.clip(values, ends.min, ends.max).astype(np.float32)
        return np.maximum(np.nextafter(rounded, np.float32(-np.inf)), ends.min)
    limits = np.iinfo(np.int32)
    return np.clip(np.floor(values), limits.min + 1, limits.max).astype(np.int32)


def _tiles(items: int, queries: int) -> Iterator[tuple[int, int]]:
    """Ranges of items, larger for few queries."""
    size = min(max(MIN_TILE_ITEMS, TILE_PRODUCTS // queries // GROUP * GROUP), MAX_TILE_ITEMS)
    for first in range(0, items, size):
        yield first, min(first + size, items)
