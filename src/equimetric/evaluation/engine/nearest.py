"""The k nearest gallery items of every query in a tile: largest similarity first, ties by lower gallery index.

The tile ranks in its own precision. Neighbours closer than its rounding error are compared again without rounding, so
the result depends on the vectors alone: not on the block size, the number of threads, or the index of a duplicate.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Tile
from equimetric.ops.blocks import slices

__all__ = ["SPARE", "find_nearest", "first_k", "rerank_near_ties", "top_entries"]

SPARE = 4
"""Ranks read beyond k: a near-tie across the k-th rank that ends within them needs no second pass over the row."""
COARSE_SPARE = 64
"""The same for bfloat16 products, whose near-ties are many."""
EXACT_SHARE = 4
"""Rows are computed again in quarters of a tile: they are float64, with masks of the same shape."""
MISSING = -1
"""Index of a missing gallery item, where a query has fewer than k."""


def find_nearest(tile: Tile, k: int, *, sets: LabelledSets | None = None, ordered: int = 0) -> Tensor:
    """Gallery indices of the k nearest items of each of the tile's queries, (rows, k) int64; −1 where there are fewer.

    Given the sets with their classes, near-ties after rank `ordered` are resolved only between relevant and other
    items: the order among relevant items, or among others, changes no metric.
    """
    if tile.matrix.ranks_as_computed:
        return torch.cat(
            [_first_compared(tile.similarity[rows], k) for rows in slices(len(tile.rows), _share(tile.rows))]
        )
    width = min(k + (COARSE_SPARE if tile.coarse else SPARE), tile.similarity.shape[1])
    values, columns = top_entries(tile.similarity, width)
    if not tile.coarse:
        return rerank_near_ties(tile.matrix, tile.rows, values, columns, k, sets=sets, ordered=ordered)
    values, uncertain = values.double(), tile.matrix.coarse_tolerance(tile.rows)
    incomplete = (values[:, k - 1] - values[:, -1] <= uncertain[:, 0]) & (width < tile.similarity.shape[1])
    candidate = (values >= values[:, k - 1 : k] - uncertain) & ~incomplete[:, None]
    values, columns = _recompute(tile, values, columns, candidate)
    ranked = rerank_near_ties(tile.matrix, tile.rows, values, columns, k, sets=sets, ordered=ordered)
    again = incomplete.nonzero().flatten()
    for some in slices(len(again), _share(tile.rows)):
        ranked[again[some]] = find_nearest(tile.recompute(again[some]), k, sets=sets, ordered=ordered)
    return ranked


def rerank_near_ties(
    matrix: SimilarityMatrix,
    rows: Tensor,
    values: Tensor,
    columns: Tensor,
    k: int,
    *,
    sets: LabelledSets | None = None,
    ordered: int = 0,
) -> Tensor:
    """The k nearest items as `find_nearest` ranks them, out of the top entries (rows, width > k) by falling value.

    Near-ties are ordered without rounding; rows where they may reach beyond the entries are computed again.
    """
    tolerance = matrix.tolerance(rows, values.dtype)
    incomplete = (values[:, k - 1] - values[:, -1] <= tolerance[:, 0]) & (values.shape[1] < len(matrix.gallery))
    chain = _chains(values, tolerance)
    relevant = None if sets is None else sets.is_relevant(rows, columns)
    doubtful = _in_chains(chain) if relevant is None else _in_mixed_chains(chain, relevant, ordered)
    doubtful &= (values > -torch.inf) & ~incomplete[:, None]
    columns = _order_exactly(matrix, rows, values, columns, doubtful)
    ranked = columns.masked_fill_(values == -torch.inf, MISSING)[:, :k]
    again = incomplete.nonzero().flatten()
    for some in slices(len(again), _share(rows)):
        ranked[again[some]] = _first_compared(matrix.exact_rows(rows[again[some]]), k)
    return ranked


def top_entries(similarity: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Values and columns of the `width` largest entries of each row, falling; like `topk`, in fewer passes.

    Columns form groups of a few. The `width` groups with the largest maxima hold the `width` largest entries; of the
    other groups only the maximum is read.
    """
    items = similarity.shape[1]
    size = 16 if items >= 256 * width else 8
    groups = items // size
    if groups < 2 * width:
        return similarity.topk(width, dim=1)
    grouped = similarity[:, : groups * size].view(-1, size, groups)
    kept = grouped.amax(dim=1).topk(width, dim=1, sorted=False).indices
    candidates = grouped.gather(2, kept[:, None, :].expand(-1, size, -1)).flatten(1)
    rest = similarity[:, groups * size :]
    values, places = torch.cat([candidates, rest], dim=1).topk(width, dim=1)
    of_groups = places < candidates.shape[1]
    in_groups = places // width * groups + kept.gather(1, places % width)
    return values, torch.where(of_groups, in_groups, places - candidates.shape[1] + groups * size)


def first_k(similarity: Tensor, k: int) -> Tensor:
    """Indices of the k largest entries of each row; ties by lower index, also across the k-th rank."""
    least = similarity.topk(k, dim=1).values[:, -1:]
    above, level = similarity > least, similarity == least
    vacant = k - above.sum(dim=1, keepdim=True)
    chosen = above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= vacant))
    columns = chosen.nonzero()[:, 1].view(-1, k)
    return _by_similarity(similarity.gather(1, columns), columns)


def _recompute(tile: Tile, values: Tensor, columns: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
    """The candidates among coarse top entries, sorted by their float64 products; −∞ for the others."""
    rows, places = (candidate & (values > -torch.inf)).nonzero(as_tuple=True)
    again = torch.full(values.shape, -torch.inf, dtype=torch.float64, device=values.device)
    again[rows, places] = tile.matrix.float64_products(tile.rows[rows], columns[rows, places])
    again, order = again.sort(dim=1, descending=True)
    return again, columns.gather(1, order)


def _share(rows: Tensor) -> int:
    return max(1, len(rows) // EXACT_SHARE)


def _first_compared(similarity: Tensor, k: int) -> Tensor:
    """As `first_k`, with −1 for excluded pairs."""
    columns = first_k(similarity, k)
    return columns.masked_fill_(similarity.gather(1, columns) == -torch.inf, MISSING)


def _chains(values: Tensor, tolerance: Tensor) -> Tensor:
    """Chain number of each entry: along a row of falling values, a gap above the tolerance starts a new chain."""
    return pad(values[:, :-1] - values[:, 1:] > tolerance, (1, 0)).cumsum(dim=1)


def _in_chains(chain: Tensor) -> Tensor:
    """Which entries share their chain with another."""
    linked = chain[:, :-1] == chain[:, 1:]
    return pad(linked, (0, 1)) | pad(linked, (1, 0))


def _in_mixed_chains(chain: Tensor, relevant: Tensor, ordered: int) -> Tensor:
    """Which entries share their chain with one of the other kind, or within the first `ordered` ranks with any."""
    several = _in_chains(chain)
    both = several & (_any_in_chain(chain, relevant) & _any_in_chain(chain, ~relevant))
    return both | (several & (chain <= chain[:, ordered - 1 : ordered])) if ordered else both


def _any_in_chain(chain: Tensor, marked: Tensor) -> Tensor:
    found = torch.zeros_like(marked).scatter_reduce_(1, chain, marked, "amax")
    return found.gather(1, chain)


def _order_exactly(matrix: SimilarityMatrix, rows: Tensor, values: Tensor, columns: Tensor, doubtful: Tensor) -> Tensor:
    """The columns sorted again after the similarities of doubtful entries are recomputed.

    Float64 is cheap and resolves all but true ties, so it comes first where the values have less precision.
    """
    columns = columns.clone()
    some = doubtful.any(dim=1).nonzero().flatten()
    if not len(some):
        return columns
    queries = rows[some]
    some_values, some_columns, doubtful = values[some].double(), columns[some], doubtful[some]

    def recompute(products: Callable[[Tensor, Tensor], Tensor]) -> None:
        some_values[doubtful] = products(queries[doubtful.nonzero()[:, 0]], some_columns[doubtful])

    if values.dtype != torch.float64:
        recompute(matrix.float64_products)
        some_values, order = some_values.sort(dim=1, descending=True)
        some_columns, doubtful = some_columns.gather(1, order), doubtful.gather(1, order)
        doubtful &= _in_chains(_chains(some_values, matrix.tolerance(queries, torch.float64)))
    recompute(matrix.exact_products)
    ascending, order = some_columns.sort(dim=1)
    columns[some] = _by_similarity(some_values.gather(1, order), ascending)
    return columns


def _by_similarity(values: Tensor, ascending_columns: Tensor) -> Tensor:
    """Columns by falling value; the input ascends, and a stable sort keeps that among equal values."""
    return ascending_columns.gather(1, values.argsort(dim=1, descending=True, stable=True))
