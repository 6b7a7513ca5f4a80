"""A few nearest neighbours within one set from half of its similarity matrix: s_ij = s_ji is computed once.

A strip compares some queries with themselves and all later ones. Its rows rank its own queries; its columns bring
candidates to the later queries. Every query keeps its top entries so far, and most columns hold nothing larger.
"""

import torch
from torch import Tensor

from equimetric.evaluation.engine.nearest import top_entries
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Strip
from equimetric.ops.blocks import slices

__all__ = ["HalfMatrixTopK"]

QUERIES_AT_FIRST = 4096
"""Columns of the first strip copied at a time: there are no entries yet to compare them with."""
QUERIES_AT_A_TIME = 16384
"""Columns of later strips read at a time: in the second strip most of them still bring larger entries."""


class HalfMatrixTopK:
    """The `width` largest similarities of every query, and their places in scan order."""

    def __init__(self, matrix: SimilarityMatrix, width: int) -> None:
        self.width, queries, like = width, len(matrix.queries), matrix.queries.vectors
        self.values = torch.full((queries, width), -torch.inf, dtype=like.dtype, device=like.device)
        self.places = torch.zeros(queries, width, dtype=torch.int64, device=like.device)

    def take(self, strip: Strip) -> tuple[Tensor, Tensor]:
        """Values and places (rows, width) of the strip's queries, falling: all their pairs are now known."""
        start, stop = strip.rows.start, strip.rows.stop
        if stop < len(self.values):
            self._keep_for_later(strip.similarity[:, stop - start :], start, stop)
        own = slice(start, stop)
        values, columns = top_entries(strip.similarity, min(self.width, strip.similarity.shape[1]))
        self._merge(own, values, columns + start)
        return self.values[own], self.places[own]

    def _keep_for_later(self, similarity: Tensor, start: int, stop: int) -> None:
        """Read the columns of a strip (rows, later queries): keep entries above the smallest kept one of the query."""
        if start < self.width:
            for some in slices(similarity.shape[1], QUERIES_AT_FIRST):
                values, rows = top_entries(similarity[:, some].T.contiguous(), min(self.width, len(similarity)))
                self._merge(slice(stop + some.start, stop + some.stop), values, rows + start)
            return
        size = _group_size(len(similarity))
        for some in slices(similarity.shape[1], QUERIES_AT_A_TIME):
            least = self.values[stop + some.start : stop + some.stop, -1].contiguous()
            groups = torch.unflatten(similarity[:, some], 0, (-1, size))
            column, group = (groups.amax(dim=1) > least).T.nonzero(as_tuple=True)
            values = groups[group, :, column]
            place, within = (values > least[column, None]).nonzero(as_tuple=True)
            entries = column[place], values[place, within], start + group[place] * size + within
            self._merge_entries(stop + some.start, *entries)

    def _merge_entries(self, stop: int, column: Tensor, values: Tensor, rows: Tensor) -> None:
        """Merge a list of entries, sorted by column, into the top entries of these columns."""
        if not len(column):
            return
        counts = torch.bincount(column)
        affected = counts.nonzero().flatten()
        line = torch.zeros_like(counts).index_copy_(0, affected, torch.arange(len(affected), device=counts.device))
        within = torch.arange(len(column), device=counts.device) - (counts.cumsum(0) - counts)[column]
        shape = len(affected), int(counts.max())
        new_values = torch.full(shape, -torch.inf, dtype=values.dtype, device=values.device)
        new_rows = torch.zeros(shape, dtype=torch.int64, device=values.device)
        new_values[line[column], within] = values
        new_rows[line[column], within] = rows
        self._merge(stop + affected, new_values, new_rows)

    def _merge(self, queries: slice | Tensor, values: Tensor, columns: Tensor) -> None:
        values, places = torch.cat([self.values[queries], values], dim=1).topk(self.width, dim=1)
        self.values[queries] = values
        self.places[queries] = torch.cat([self.places[queries], columns], dim=1).gather(1, places)


def _group_size(rows: int) -> int:
    """Rows of a strip whose maximum is read first."""
    return next(size for size in (16, 8, 4, 2, 1) if rows % size == 0)
