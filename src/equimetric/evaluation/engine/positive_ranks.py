"""The ranks of all relevant items, by counting: rows of similarities are not sorted.

The m-th nearest relevant item has rank m + (other items that are nearer), which are counted by comparing similarities
with its own. Order statistics move no more than the values do: where no other item lies within the rounding error of
the m-th value, the count is certain. Rows with a doubtful count are computed again in float64, and rows with true ties
are sorted without rounding.
"""

import torch
from torch import Tensor

from equimetric.evaluation.engine.exact import WORKING_BYTES
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.tiles import Tile
from equimetric.ops.blocks import slices

__all__ = ["count_above", "count_others_before"]

RECOUNT_SHARE = 4
"""Rows are computed again in quarters of a tile: they are float64."""
MAX_PASSES = 24
"""With more thresholds, sorting a row once is faster than comparing it with each."""


def count_others_before(tile: Tile, sets: LabelledSets, *, first_only: bool = False) -> Tensor:
    """Number of items of other classes that rank before the m-th nearest relevant one, (rows, most relevant) int64.

    With `first_only` for m = 1 alone, (rows, 1). Where a query has fewer relevant items the count is −1.
    """
    num_relevant = sets.num_relevant[tile.rows]
    num_ranks = min(int(num_relevant.max()), 1) if first_only else int(num_relevant.max())
    counts = torch.full((len(num_relevant), num_ranks), -1, dtype=torch.int64, device=num_relevant.device)
    if not num_ranks:
        return counts
    if tile.matrix.has_exact_products:
        doubtful = _count_by_keys(tile, sets, counts)
    else:
        tolerance = tile.matrix.tolerance(tile.rows, tile.similarity.dtype)
        doubtful = _count(tile.similarity, tile.rows, tolerance, sets, counts)
    for block in slices(len(doubtful), max(1, len(tile.rows) // RECOUNT_SHARE)):
        _recount(tile, doubtful[block], sets, counts)
    return counts


def count_above(values: Tensor, thresholds: Tensor) -> Tensor:
    """Number of a row's values above each of its thresholds: (rows, G), (rows, T) → (rows, T) int64."""
    if thresholds.shape[1] <= MAX_PASSES:
        above, ones = torch.empty_like(values), values.new_ones(values.shape[1])
        # A product with ones adds up numbers several times faster than a sum over truth values.
        passes = [torch.mv(torch.gt(values, threshold[:, None], out=above), ones) for threshold in thresholds.T]
        return torch.stack(passes, dim=1).long()
    return values.shape[1] - torch.searchsorted(_sort_rows(values), thresholds.contiguous(), right=True)


def _count(similarity: Tensor, rows: Tensor, tolerance: Tensor, sets: LabelledSets, counts: Tensor) -> Tensor:
    """Fill in the counts of all rows; returns which rows are doubtful."""
    doubtful = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    for block in slices(len(rows), max(1, WORKING_BYTES // (similarity.shape[1] * similarity.element_size()))):
        columns = sets.relevant_columns(rows[block])
        values = _relevant_values(similarity[block], columns)
        relevant_values = values[:, : counts.shape[1]]
        infinity = relevant_values.new_tensor(torch.inf)
        # One step further out: the sum itself is rounded.
        upper_bounds = torch.nextafter(relevant_values + tolerance[block].to(relevant_values.dtype), infinity)
        lower_bounds = torch.nextafter(relevant_values - tolerance[block].to(relevant_values.dtype), -infinity)
        thresholds = torch.cat([upper_bounds, lower_bounds], dim=1)
        ascending = values.flip(1).contiguous()
        relevant_above = values.shape[1] - torch.searchsorted(ascending, thresholds, right=True)
        min_counts, max_counts = (count_above(similarity[block], thresholds) - relevant_above).chunk(2, dim=1)
        exists = relevant_values > -torch.inf
        counts[block, : relevant_values.shape[1]] = torch.where(exists, min_counts, -1)
        doubtful[block] = ((min_counts != max_counts) & exists).any(dim=1)
    return doubtful.nonzero().flatten()


def _count_by_keys(tile: Tile, sets: LabelledSets, counts: Tensor) -> Tensor:
    """As `_count` for similarities that are whole numbers: s·G − column orders by similarity, then by lower index."""
    items = tile.similarity.shape[1]
    for block in slices(len(tile.rows), max(1, WORKING_BYTES // (8 * items))):
        keys = tile.similarity[block].double() * items - torch.arange(items, device=tile.rows.device)
        values = _relevant_values(keys, sets.relevant_columns(tile.rows[block]))[:, : counts.shape[1]]
        above = count_above(keys, values) - torch.arange(values.shape[1], device=values.device)
        counts[block, : values.shape[1]] = torch.where(values > -torch.inf, above, -1)
    return tile.rows.new_empty(0)


def _recount(tile: Tile, which: Tensor, sets: LabelledSets, counts: Tensor) -> None:
    """Count for some rows of the tile in float64, and without rounding where that is not enough."""
    rows = tile.rows[which]
    recounted = counts[which]
    tolerance = tile.matrix.tolerance(rows, torch.float64)
    tied = _count(tile.matrix.float64_rows(rows), rows, tolerance, sets, recounted)
    if len(tied):
        similarity = tile.matrix.exact_rows(rows[tied])
        ranking = similarity.argsort(dim=1, descending=True, stable=True)
        relevance = sets.is_relevant(rows[tied], ranking) & (similarity.gather(1, ranking) > -torch.inf)
        row, rank = relevance.nonzero(as_tuple=True)
        index = relevance.cumsum(dim=1)[row, rank] - 1
        within = index < counts.shape[1]
        recounted[tied[row[within]], index[within]] = (rank - index)[within]
    counts[which] = recounted


def _relevant_values(similarity: Tensor, columns: Tensor) -> Tensor:
    """Similarities of the relevant items of each row, falling, padded with −∞."""
    values = similarity.gather(1, columns.clamp(min=0)).masked_fill_(columns < 0, -torch.inf)
    return values.sort(dim=1, descending=True).values


def _sort_rows(values: Tensor) -> Tensor:
    """Rows in ascending order; numpy's sort, which returns no indices, is many times faster on CPU."""
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    import numpy as np

    return torch.from_numpy(np.sort(values.numpy(), axis=1))
