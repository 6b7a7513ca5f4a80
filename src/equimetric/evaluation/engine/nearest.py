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
from equimetric.evaluation.engine.top_entries import TopEntries, first_k, top_entries
from equimetric.ops.blocks import TILE_BYTES, slices

__all__ = ["SPARE", "NearestEntries", "find_nearest", "rerank_near_ties", "search_rows"]

SPARE = 4
"""Ranks read beyond k: a near-tie across the k-th rank that ends within them needs no second pass over the row."""
COARSE_SPARE = 64
"""The same for bfloat16 products, whose near-ties are many."""
RERANK_COLUMNS = 2**16
"""Gallery items that rows are compared with again at a time."""
RERANK_ROWS = 64
"""Rows that are compared again at a time: in float64, with masks of the same shape."""
MISSING = -1
"""Index of a missing gallery item, where a query has fewer than k."""


def find_nearest(tile: Tile, k: int, *, sets: LabelledSets | None = None, ordered: int = 0) -> Tensor:
    """Gallery indices of the k nearest items of each of the tile's queries, (rows, k) int64; −1 where there are fewer.

    The tile has whole rows: see `NearestEntries` for others. Given the sets with their classes, near-ties after rank
    `ordered` are resolved only between relevant and other items: the order among relevant items, or among others,
    changes no metric.
    """
    if tile.matrix.ranks_as_computed:
        some_rows = slices(len(tile.rows), max(1, TILE_BYTES // (8 * tile.similarity.shape[1])))
        return torch.cat([_first_k_or_missing(tile.similarity[rows], k) for rows in some_rows])
    values, columns = top_entries(tile.similarity, _width(tile.matrix, k, tile.coarse))
    return _rank(tile.matrix, tile.rows, values, columns, k, coarse=tile.coarse, sets=sets, ordered=ordered)


class NearestEntries:
    """As `find_nearest` for queries whose tiles have some columns each, in their order."""

    def __init__(self, matrix: SimilarityMatrix, rows: Tensor, k: int, *, coarse: bool = False) -> None:
        self.matrix, self.rows, self.k, self.coarse = matrix, rows, k, coarse
        stable, dtype = matrix.ranks_as_computed, torch.bfloat16 if coarse else matrix.dtype
        width = k if stable else _width(matrix, k, coarse)
        self.top = TopEntries(len(rows), width, dtype, rows.device, stable=stable)

    def take(self, similarity: Tensor, first_column: int) -> None:
        """Read the next columns (rows, K)."""
        self.top.take(similarity, first_column)

    def rank(self, *, sets: LabelledSets | None = None, ordered: int = 0) -> Tensor:
        """The k nearest items, (rows, k), once all columns are read."""
        if self.top.stable:
            return self.top.indices.masked_fill(self.top.values == -torch.inf, MISSING)
        entries = self.top.values, self.top.indices
        return _rank(self.matrix, self.rows, *entries, self.k, coarse=self.coarse, sets=sets, ordered=ordered)


def search_rows(
    matrix: SimilarityMatrix, rows: Tensor, k: int, *, sets: LabelledSets | None = None, ordered: int = 0
) -> Tensor:
    """As `find_nearest` for some queries, whose similarities are computed for it, in the embeddings' own precision."""
    nearest = NearestEntries(matrix, rows, k)
    for columns in slices(matrix.item_count, RERANK_COLUMNS):
        nearest.take(matrix.similarity(rows, columns=columns), columns.start)
    return nearest.rank(sets=sets, ordered=ordered)


def _width(matrix: SimilarityMatrix, k: int, coarse: bool) -> int:
    """Number of top entries to read for the k nearest items."""
    return min(k + (COARSE_SPARE if coarse else SPARE), matrix.item_count)


def _rank(
    matrix: SimilarityMatrix,
    rows: Tensor,
    values: Tensor,
    columns: Tensor,
    k: int,
    *,
    coarse: bool,
    sets: LabelledSets | None,
    ordered: int,
) -> Tensor:
    """The k nearest items out of the top entries (rows, width ≥ k) by falling value."""
    if not coarse:
        return rerank_near_ties(matrix, rows, values, columns, k, sets=sets, ordered=ordered)
    values, uncertain = values.double(), matrix.coarse_tolerance(rows)
    incomplete = (values[:, k - 1] - values[:, -1] <= uncertain[:, 0]) & (values.shape[1] < matrix.item_count)
    candidate = (values >= values[:, k - 1 : k] - uncertain) & ~incomplete[:, None]
    values, columns = _recompute(matrix, rows, values, columns, candidate)
    ranked = rerank_near_ties(matrix, rows, values, columns, k, sets=sets, ordered=ordered)
    rerun = incomplete.nonzero().flatten()
    for block in slices(len(rerun), RERANK_ROWS):
        ranked[rerun[block]] = search_rows(matrix, rows[rerun[block]], k, sets=sets, ordered=ordered)
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
    incomplete = (values[:, k - 1] - values[:, -1] <= tolerance[:, 0]) & (values.shape[1] < matrix.item_count)
    chain = _chains(values, tolerance)
    relevant = None if sets is None else sets.is_relevant(rows, columns)
    doubtful = _in_chains(chain) if relevant is None else _in_mixed_chains(chain, relevant, ordered)
    doubtful &= (values > -torch.inf) & ~incomplete[:, None]
    columns = _order_exactly(matrix, rows, values, columns, doubtful)
    ranked = columns.masked_fill_(values == -torch.inf, MISSING)[:, :k]
    rerun = incomplete.nonzero().flatten()
    for block in slices(len(rerun), RERANK_ROWS):
        ranked[rerun[block]] = _search_exactly(matrix, rows[rerun[block]], k)
    return ranked


def _search_exactly(matrix: SimilarityMatrix, rows: Tensor, k: int) -> Tensor:
    """The k nearest items of some queries by similarities without rounding."""
    top = TopEntries(len(rows), k, torch.float64, rows.device, stable=True)
    for columns in slices(matrix.item_count, RERANK_COLUMNS):
        top.take(matrix.exact_rows(rows, columns), columns.start)
    return top.indices.masked_fill(top.values == -torch.inf, MISSING)


def _recompute(
    matrix: SimilarityMatrix, queries: Tensor, values: Tensor, columns: Tensor, candidate: Tensor
) -> tuple[Tensor, Tensor]:
    """The candidates among coarse top entries, sorted by their float64 products; −∞ for the others."""
    rows, indices = (candidate & (values > -torch.inf)).nonzero(as_tuple=True)
    products = torch.full(values.shape, -torch.inf, dtype=torch.float64, device=values.device)
    products[rows, indices] = matrix.float64_products(queries[rows], columns[rows, indices])
    products, order = products.sort(dim=1, descending=True)
    return products, columns.gather(1, order)


def _first_k_or_missing(similarity: Tensor, k: int) -> Tensor:
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
    linked = _in_chains(chain)
    mixed = linked & (_any_in_chain(chain, relevant) & _any_in_chain(chain, ~relevant))
    return mixed | (linked & (chain <= chain[:, ordered - 1 : ordered])) if ordered else mixed


def _any_in_chain(chain: Tensor, marked: Tensor) -> Tensor:
    chain_marks = torch.zeros_like(marked).scatter_reduce_(1, chain, marked, "amax")
    return chain_marks.gather(1, chain)


def _order_exactly(matrix: SimilarityMatrix, rows: Tensor, values: Tensor, columns: Tensor, doubtful: Tensor) -> Tensor:
    """The columns sorted again after the similarities of doubtful entries are recomputed.

    Float64 is cheap and resolves all but true ties, so it comes first where the values have less precision.
    """
    columns = columns.clone()
    affected = doubtful.any(dim=1).nonzero().flatten()
    if not len(affected):
        return columns
    queries = rows[affected]
    row_values, row_columns, doubtful = values[affected].double(), columns[affected], doubtful[affected]

    def recompute(products: Callable[[Tensor, Tensor], Tensor]) -> None:
        row_values[doubtful] = products(queries[doubtful.nonzero()[:, 0]], row_columns[doubtful])

    if values.dtype != torch.float64:
        recompute(matrix.float64_products)
        row_values, order = row_values.sort(dim=1, descending=True)
        row_columns, doubtful = row_columns.gather(1, order), doubtful.gather(1, order)
        doubtful &= _in_chains(_chains(row_values, matrix.tolerance(queries, torch.float64)))
    recompute(matrix.exact_products)
    ascending, order = row_columns.sort(dim=1)
    columns[affected] = _by_similarity(row_values.gather(1, order), ascending)
    return columns


def _by_similarity(values: Tensor, ascending_columns: Tensor) -> Tensor:
    """Columns by falling value; the input ascends, and a stable sort keeps that among equal values."""
    return ascending_columns.gather(1, values.argsort(dim=1, descending=True, stable=True))
