"""A few nearest neighbours within one set from half of its similarity matrix: s_ij = s_ji is computed once.

A strip compares some queries with themselves and later ones. Its rows bring candidates to its own queries, its columns
to the later ones. Every query keeps its top entries so far, and most columns hold nothing larger.
"""

import torch
from torch import Tensor

from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Strip
from equimetric.evaluation.engine.top_entries import GROUP, TopEntries, top_entries
from equimetric.ops.blocks import slices

__all__ = ["HalfMatrixTopK"]

FIRST_CHUNK_SIZE = 4096
"""Columns of the first strip copied at a time: there are no entries yet to compare them with."""
QUERY_CHUNK_SIZE = 16384
"""Columns of later strips read at a time: in the second strip most of them still bring larger entries."""


class HalfMatrixTopK:
    """The `width` largest similarities of every query, and their indices in scan order."""

    def __init__(self, matrix: SimilarityMatrix, width: int) -> None:
        self.top = TopEntries(len(matrix.order), width, matrix.dtype, matrix.device)

    def take(self, strip: Strip) -> None:
        """Read a strip."""
        if strip.num_own_columns < strip.similarity.shape[1]:
            self._take_columns(
                strip.similarity[:, strip.num_own_columns :],
                strip.rows.start,
                strip.columns.start + strip.num_own_columns,
            )
        self.top.take(strip.similarity, strip.columns.start, strip.rows)

    def entries(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Values and indices (rows, width) of queries in a range of the scan's order, falling, after the last strip."""
        return self.top.values[rows], self.top.indices[rows]

    def partial(self) -> tuple[Tensor, Tensor]:
        """The top entries from the strips so far."""
        return self.top.values, self.top.indices

    def merge(self, partial: tuple[Tensor, Tensor]) -> None:
        """Merge the top entries of other strips."""
        for rows in slices(len(self.top.values), QUERY_CHUNK_SIZE):
            self.top.merge(rows, *(part[rows] for part in partial))

    def _take_columns(self, similarity: Tensor, first_row: int, first_query: int) -> None:
        """Read columns (rows, later queries): keep entries above the smallest kept one of the query."""
        for block in slices(similarity.shape[1], QUERY_CHUNK_SIZE):
            queries = slice(first_query + block.start, first_query + block.stop)
            min_kept = self.top.values[queries, -1].contiguous()
            if int((min_kept == -torch.inf).sum()) * GROUP > len(min_kept):
                self._take_first(similarity[:, block], first_row, queries.start)
                continue
            size = _group_size(len(similarity))
            groups = torch.unflatten(similarity[:, block], 0, (-1, size))
            column, group = (groups.amax(dim=1) > min_kept).T.nonzero(as_tuple=True)
            values = groups[group, :, column]
            entry, within = (values > min_kept[column, None]).nonzero(as_tuple=True)
            indices = first_row + group[entry] * size + within
            self.top.merge_list(queries.start + column[entry], values[entry, within], indices)

    def _take_first(self, similarity: Tensor, first_row: int, first_query: int) -> None:
        """Read columns of queries that have too few entries to compare with."""
        width = min(self.top.width, len(similarity))
        for block in slices(similarity.shape[1], FIRST_CHUNK_SIZE):
            values, rows = top_entries(similarity[:, block].T.contiguous(), width)
            self.top.merge(slice(first_query + block.start, first_query + block.stop), values, rows + first_row)


def _group_size(rows: int) -> int:
    """Rows of a strip whose maximum is read first."""
    return next(size for size in (16, 8, 4, 2, 1) if rows % size == 0)
