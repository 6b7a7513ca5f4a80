"""A few nearest neighbours within one set from half of its similarity matrix: s_ij = s_ji is computed once.

A strip compares some queries with themselves and all that come after them. Its rows are read as ever; its columns bring
candidates to the queries that come after. These keep their leading entries so far, and most of a strip's columns hold
nothing that is larger than the last of them.
"""

import torch
from torch import Tensor

from equimetric.evaluation.comparison import Comparison
from equimetric.evaluation.exact import slices
from equimetric.evaluation.nearest import leading
from equimetric.evaluation.scan import Strip

__all__ = ["LeadingOfHalves"]

QUERIES_AT_FIRST = 4096
"""Columns of the first strip that are copied at a time: there is nothing yet to compare them with."""
QUERIES_AT_A_TIME = 16384
"""Columns of later strips that are read at a time: in the second strip most of them still have better entries."""


class LeadingOfHalves:
    """The `width` largest similarities of every query, and where in the order of the scan they stand."""

    def __init__(self, comparison: Comparison, width: int) -> None:
        self.width, queries, like = width, len(comparison.queries), comparison.queries.vectors
        self.values = torch.full((queries, width), -torch.inf, dtype=like.dtype, device=like.device)
        self.places = torch.zeros(queries, width, dtype=torch.int64, device=like.device)

    def take(self, strip: Strip) -> tuple[Tensor, Tensor]:
        """Values and places (rows, width) of the strip's queries, falling: all their pairs have now been seen."""
        start, stop = strip.rows.start, strip.rows.stop
        if stop < len(self.values):
            self._keep_for_later(strip.similarity[:, stop - start :], start, stop)
        own = slice(start, stop)
        values, columns = leading(strip.similarity, min(self.width, strip.similarity.shape[1]))
        self._merge(own, values, columns + start)
        return self.values[own], self.places[own]

    def _keep_for_later(self, similarity: Tensor, start: int, stop: int) -> None:
        """Read the columns of a strip (rows, later queries): entries above the last of a column's leading ones."""
        if start < self.width:
            for some in slices(similarity.shape[1], QUERIES_AT_FIRST):
                values, rows = leading(similarity[:, some].T.contiguous(), min(self.width, len(similarity)))
                self._merge(slice(stop + some.start, stop + some.stop), values, rows + start)
            return
        size = _hand_size(len(similarity))
        for some in slices(similarity.shape[1], QUERIES_AT_A_TIME):
            least = self.values[stop + some.start : stop + some.stop, -1].contiguous()
            hands = torch.unflatten(similarity[:, some], 0, (-1, size))
            column, hand = (hands.amax(dim=1) > least).T.nonzero(as_tuple=True)
            values = hands[hand, :, column]
            place, within = (values > least[column, None]).nonzero(as_tuple=True)
            entries = column[place], values[place, within], start + hand[place] * size + within
            self._merge_entries(stop + some.start, *entries)

    def _merge_entries(self, stop: int, column: Tensor, values: Tensor, rows: Tensor) -> None:
        """Merge a list of entries, in the order of their columns, into the leading ones of these columns."""
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


def _hand_size(rows: int) -> int:
    """Rows of a strip that are looked at together."""
    return next(size for size in (16, 8, 4, 2, 1) if rows % size == 0)
