"""The candidates of a single query: the same as of several, found with few calls.

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
"""Of the first tile: the k-th of their largest products is a first lower bound."""


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
    step, renew = float(products.step[0]), 1
    found = list[Candidates]()
    for number, (first, last) in enumerate(tiles, 1):
        tile, error = products.tile(first, last)[0].numpy(), float(products.error(first, last)[0])
        here = live[first:last]
        if not here.all():
            tile[~here] = padding_value(tile.dtype)
        if number == 1 and k is not None:
            lower_bound = max(lower_bound, _kth_largest(tile, k) * step - error)
        places = np.flatnonzero(tile >= _floor((lower_bound - error) / step, tile.dtype))
        middle = tile[places].astype(np.float64) * step
        query = np.zeros(len(places), np.int64)
        found.append(Candidates(query, places + first, middle - error, middle + error))
        if k is not None and (number == renew or last == len(live)):
            renew *= 2
            seen = Candidates.join(found)
            lower_bound = max(lower_bound, float(seen.kth_low(1, k)[0]))
            found = [seen.above(np.array([lower_bound]))]
    return Candidates.join(found)


def _kth_largest(tile: NDArray[Any], k: int) -> float:
    """A number that k of the products reach: the k-th largest of groups, or of all where there are few."""
    size = len(tile) // GROUPS
    largest = tile[: size * GROUPS].reshape(size, GROUPS).max(axis=0) if size and k <= GROUPS else tile
    return float(np.partition(largest, -k)[-k]) if k <= len(largest) else -math.inf


def _floor(value: float, dtype: np.dtype[Any]) -> np.float32 | np.int32:
    """The largest product that is not above this, but above the padding."""
    limits = np.finfo(np.float32) if dtype == np.float32 else np.iinfo(np.int32)
    value = min(max(value, float(limits.min)), float(limits.max))
    if dtype == np.float32:
        # Below by more than the rounding to float32, also where that is of the smallest numbers.
        return np.float32(max(value - abs(value) * 2.0**-23 - 2.0**-149, float(limits.min)))
    return np.int32(max(math.floor(value), limits.min + 1))
