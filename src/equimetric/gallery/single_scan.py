"""Candidates of a single query: the result of `scan` with less call overhead.

Reading the codes of some ten thousand items takes as long as a few dozen calls of a library, so every one counts.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.gallery.candidates import Candidates, padding_value
from equimetric.gallery.tiles import TileProducts

__all__ = ["scan_single"]

GROUPS = 1024
"""Groups of the first tile: the k-th of their largest products is the first lower bound."""


def scan_single(
    products: TileProducts,
    live: NDArray[np.bool_],
    tiles: Iterable[tuple[int, int]],
    *,
    lower_bound: float = -math.inf,
    k: int | None = None,
) -> Candidates:
    """The live items whose affinity may be as large as a lower bound; with k, that may be among the k of the largest.

    A lower bound that k items certainly reach rises after 1, 2, 4, 8 … tiles.
    """
    step, next_update = float(products.step[0]), 1
    candidates = list[Candidates]()
    for count, (first, last) in enumerate(tiles, 1):
        tile, error = products.tile(first, last)[0].numpy(), float(products.error(first, last)[0])
        live_tile = live[first:last]
        if not live_tile.all():
            tile[~live_tile] = padding_value(tile.dtype)
        if count == 1 and k is not None:
            lower_bound = max(lower_bound, _kth_largest(tile, k) * step - error)
        positions = np.flatnonzero(tile >= _floor((lower_bound - error) / step, tile.dtype))
        estimate = tile[positions].astype(np.float64) * step
        query = np.zeros(len(positions), np.int64)
        candidates.append(Candidates(query, positions + first, estimate - error, estimate + error))
        if k is not None and (count == next_update or last == len(live)):
            next_update *= 2
            merged = Candidates.join(candidates)
            lower_bound = max(lower_bound, float(merged.kth_low(1, k)[0]))
            candidates = [merged.above(np.array([lower_bound]))]
    return Candidates.join(candidates)


def _kth_largest(tile: NDArray[Any], k: int) -> float:
    """A value that k of the products reach: the k-th largest group maximum, or product where there are few."""
    size = len(tile) // GROUPS
    largest = tile[: size * GROUPS].reshape(size, GROUPS).max(axis=0) if size and k <= GROUPS else tile
    return float(np.partition(largest, -k)[-k]) if k <= len(largest) else -math.inf


def _floor(value: float, dtype: np.dtype[Any]) -> np.float32 | np.int32:
    """The largest product of the dtype that is ≤ `value` and above the padding."""
    limits = np.finfo(np.float32) if dtype == np.float32 else np.iinfo(np.int32)
    value = min(max(value, float(limits.min)), float(limits.max))
    if dtype == np.float32:
        # Below by more than the rounding to float32, also where that is of the smallest numbers.
        return np.float32(max(value - abs(value) * 2.0**-23 - 2.0**-149, float(limits.min)))
    return np.int32(max(math.floor(value), limits.min + 1))
