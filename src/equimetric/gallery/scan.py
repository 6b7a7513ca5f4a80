"""The items that may be among the k nearest of a query, or within a threshold, from bounds of their affinities.

A tile is read once: the largest product of every group of items is compared with the query's cut, and only the groups
that reach it are looked at. What remains are *candidates*, a superset of what is wanted; exact scores decide.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.gallery.tiles import TileProducts

__all__ = ["Candidates", "TooManyError", "candidates_within", "nearest_candidates"]

TILE = 4096
"""Items of a tile, at least."""
PRODUCTS = 2**20
"""Of a tile: few enough for the cache, and enough to make up for the calls that a tile takes."""
LARGEST_TILE = 2**16
GROUP = 64
"""Items whose largest product is compared with a cut; a tile has whole groups."""
SEED = 2048
"""Items from which the first cuts of a search for the nearest come, at least."""
MOST = 2**22
"""Candidates of a batch of queries, at most; a single query may have more."""


class TooManyError(Exception):
    """A batch of queries has so many candidates that it is searched in parts."""


@dataclass(frozen=True)
class Candidates:
    """Pairs that may be wanted.

    query, item  (P,) their rows
    low, high    (P,) bounds of their affinities
    """

    query: Tensor
    item: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def join(cls, parts: "list[Candidates]") -> "Candidates":
        """All of them."""
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in ("query", "item", "low", "high")))

    def keep(self, mask: Tensor) -> "Candidates":
        """Those of a mask (P,)."""
        return Candidates(self.query[mask], self.item[mask], self.low[mask], self.high[mask])

    def reaching(self, cuts: Tensor) -> "Candidates":
        """Those whose affinity may be that of their query's cut (Q,) or larger."""
        return self.keep(self.high >= cuts[self.query])


def candidates_within(products: TileProducts, live: NDArray[np.bool_], cuts: Tensor) -> Candidates:
    """All pairs whose affinity may be as large as their query's cut (Q,)."""
    found = list[Candidates]()
    for first, last in _tiles(len(live), len(cuts)):
        found.append(_reaching(products, live, first, last, cuts))
        _limit(found, len(cuts))
    return Candidates.join(found)


def nearest_candidates(products: TileProducts, live: NDArray[np.bool_], k: int) -> Candidates:
    """All pairs that may be among the k items of the largest affinities of their query; k live items exist.

    A cut is an affinity that k items certainly have. It rises while the scan goes on, after 1, 2, 4, 8 … tiles.
    """
    cuts, found, renew = _first_cuts(products, live, k), list[Candidates](), 1
    for number, (first, last) in enumerate(_tiles(len(live), len(cuts)), 1):
        found.append(_reaching(products, live, first, last, cuts))
        if number == renew and last < len(live):
            renew *= 2
            seen = Candidates.join(found)
            cuts = torch.maximum(cuts, _kth_low(seen, len(cuts), k))
            found = [seen.reaching(cuts)]
        _limit(found, len(cuts))
    seen = Candidates.join(found)
    return seen.reaching(torch.maximum(cuts, _kth_low(seen, len(cuts), k)))


def _limit(found: list[Candidates], queries: int) -> None:
    if queries > 1 and sum(len(some.query) for some in found) > MOST:
        raise TooManyError


def _first_cuts(products: TileProducts, live: NDArray[np.bool_], k: int) -> Tensor:
    """(Q,) affinities that k of the first items have, for every query."""
    last = max(SEED, k)
    while last < len(live) and np.count_nonzero(live[:last]) < k:
        last *= 2
    last = min(last, len(live))
    tile = products.tile(0, last)
    kth = tile[:, torch.from_numpy(live[:last])].topk(k, dim=1).values[:, -1]
    return kth.double() * products.unit - products.error(0, last)


def _kth_low(seen: Candidates, queries: int, k: int) -> Tensor:
    """(Q,) the k-th largest lower bound of each query's candidates; −∞ where there are fewer."""
    order = torch.from_numpy(np.lexsort((-seen.low.numpy(), seen.query.numpy())))
    count = torch.bincount(seen.query, minlength=queries)
    kth = count.cumsum(0) - count + k - 1
    enough = count >= k
    cuts = torch.full((queries,), -torch.inf, dtype=torch.float64)
    cuts[enough] = seen.low[order[kth[enough]]]
    return cuts


def _reaching(products: TileProducts, live: NDArray[np.bool_], first: int, last: int, cuts: Tensor) -> Candidates:
    """The live pairs of a tile whose affinity may be as large as their query's cut."""
    tile, error = products.tile(first, last), products.error(first, last)
    least = _floor((cuts - error) / products.unit, tile.dtype)
    groups = _groups(tile)
    query, group = (groups.amax(dim=2) >= least[:, None]).nonzero(as_tuple=True)
    values = groups[query, group]
    which, member = (values >= least[query, None]).nonzero(as_tuple=True)
    query, item = query[which], group[which] * GROUP + member + first
    middle, error = values[which, member].double() * products.unit[query], error[query]
    # The filling of the last group reaches only a cut below everything.
    kept = item < last
    kept[kept.clone()] = torch.from_numpy(live[item[kept].numpy()])
    return Candidates(query, item, middle - error, middle + error).keep(kept)


def _floor(values: Tensor, dtype: torch.dtype) -> Tensor:
    """(Q,) the largest numbers of a tile's type that are not above these."""
    if dtype.is_floating_point:
        return torch.nextafter(values.to(dtype), torch.tensor(-torch.inf, dtype=dtype))
    ends = torch.iinfo(dtype)
    return values.floor().clamp(ends.min, ends.max).to(dtype)


def _groups(tile: Tensor) -> Tensor:
    """(Q, groups, GROUP): the columns of a tile by groups, the last one filled with the smallest number."""
    queries, items = tile.shape
    missing = -items % GROUP
    if missing:
        lowest = -torch.inf if tile.dtype.is_floating_point else torch.iinfo(tile.dtype).min
        tile = torch.cat([tile, tile.new_full((queries, missing), lowest)], dim=1)
    return tile.view(queries, -1, GROUP)


def _tiles(items: int, queries: int) -> Iterator[tuple[int, int]]:
    """Ranges of items, larger for few queries."""
    size = min(max(TILE, PRODUCTS // queries // GROUP * GROUP), LARGEST_TILE)
    for first in range(0, items, size):
        yield first, min(first + size, items)
