"""The k nearest gallery items of every query in a tile: largest similarity first, ties by lower gallery index.

The tile ranks in its own precision. Only where neighbours are closer than its rounding error are their similarities
taken again without rounding, so the result depends on the vectors alone: not on the block size, the number of threads,
or where in the gallery a duplicate stands.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from equimetric.evaluation.exact import slices
from equimetric.evaluation.scan import Tile

__all__ = ["first_k", "nearest"]

SPARE = 4
"""Ranks looked at beyond k: a near-tie across the k-th rank that ends within them needs no second look at the row."""
EXACT_SHARE = 4
"""Rows are taken again in quarters of a tile: they are held as float64, beside masks of the same shape."""


def nearest(tile: Tile, k: int, *, relevance: Callable[[Tensor], Tensor] | None = None, ordered: int = 0) -> Tensor:
    """Gallery indices of the k nearest items of each of the tile's queries, (rows, k) int64.

    With `relevance`, which says of columns (rows, ·) whether they are relevant, near-ties behind rank `ordered` are
    resolved only between relevant and other items: among items that are alike, the order changes no metric.
    """
    width = min(k + SPARE, tile.similarity.shape[1])
    values, columns = tile.similarity.topk(width, dim=1)
    tolerance = tile.comparison.tolerance(tile.rows, values.dtype)
    chain = _chains(values, tolerance)
    doubtful = _of_several(chain) if relevance is None else _of_both_kinds(chain, relevance(columns), ordered)
    incomplete = values[:, k - 1] - values[:, -1] <= tolerance[:, 0]
    if width == tile.similarity.shape[1]:
        incomplete = torch.zeros_like(incomplete)

    ranked = _order_exactly(tile, values, columns, doubtful & ~incomplete[:, None])[:, :k]
    again = incomplete.nonzero().flatten()
    for some in slices(len(again), max(1, len(values) // EXACT_SHARE)):
        ranked[again[some]] = first_k(tile.comparison.exact_rows(again[some] + tile.rows.start), k)
    return ranked


def first_k(similarity: Tensor, k: int) -> Tensor:
    """Indices of the k largest entries of each row, equal entries by lower index, also across the k-th rank."""
    least = similarity.topk(k, dim=1).values[:, -1:]
    above, level = similarity > least, similarity == least
    vacant = k - above.sum(dim=1, keepdim=True)
    chosen = above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= vacant))
    columns = chosen.nonzero()[:, 1].view(-1, k)
    return _by_similarity(similarity.gather(1, columns), columns)


def _chains(values: Tensor, tolerance: Tensor) -> Tensor:
    """Number the chains of near-ties along each row of falling values: a gap above the tolerance starts a new one."""
    return pad(values[:, :-1] - values[:, 1:] > tolerance, (1, 0)).cumsum(dim=1)


def _of_several(chain: Tensor) -> Tensor:
    """Which entries share their chain with another."""
    linked = chain[:, :-1] == chain[:, 1:]
    return pad(linked, (0, 1)) | pad(linked, (1, 0))


def _of_both_kinds(chain: Tensor, relevant: Tensor, ordered: int) -> Tensor:
    """Which entries share their chain with one of the other kind, or within the first `ordered` ranks with any."""
    several = _of_several(chain)
    both = several & (_any_in_chain(chain, relevant) & _any_in_chain(chain, ~relevant))
    return both | (several & (chain <= chain[:, ordered - 1 : ordered])) if ordered else both


def _any_in_chain(chain: Tensor, marked: Tensor) -> Tensor:
    found = torch.zeros_like(marked).scatter_reduce_(1, chain, marked, "amax")
    return found.gather(1, chain)


def _order_exactly(tile: Tile, values: Tensor, columns: Tensor, doubtful: Tensor) -> Tensor:
    """Reorder the ranked columns (in place) after taking the similarities of the doubtful entries again.

    float64 settles all but true ties cheaply, so it goes first where the tile has less.
    """
    rows = doubtful.any(dim=1).nonzero().flatten()
    if not len(rows):
        return columns
    queries = rows + tile.rows.start
    some_values, some_columns, doubtful = values[rows].double(), columns[rows], doubtful[rows]

    def take_again(products: Callable[[Tensor, Tensor], Tensor]) -> None:
        some_values[doubtful] = products(queries[doubtful.nonzero()[:, 0]], some_columns[doubtful])

    if values.dtype != torch.float64:
        take_again(tile.comparison.float64_products)
        some_values, order = some_values.sort(dim=1, descending=True)
        some_columns, doubtful = some_columns.gather(1, order), doubtful.gather(1, order)
        doubtful &= _of_several(_chains(some_values, tile.comparison.tolerance(queries, torch.float64)))
    take_again(tile.comparison.exact_products)
    ascending, order = some_columns.sort(dim=1)
    columns[rows] = _by_similarity(some_values.gather(1, order), ascending)
    return columns


def _by_similarity(values: Tensor, ascending_columns: Tensor) -> Tensor:
    """Columns by falling value; they come in ascending order, which a stable sort keeps among equals."""
    return ascending_columns.gather(1, values.argsort(dim=1, descending=True, stable=True))
