"""Many nearest neighbours within one set from half of its similarity matrix; `half_matrix` is for few.

A query keeps the candidates above its bound, from the rows and columns of strips. The first bound is a guess from
sampled items, low enough that too few candidates are rare. When a query's room is full, only its top candidates stay
and the smallest of them is the new bound. A query whose guess was too high is compared with everything again.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from equimetric.evaluation.engine.nearest import RERANK_COLUMNS
from equimetric.evaluation.engine.products import MIN_BLOCK_ROWS
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Strip
from equimetric.evaluation.engine.top_entries import TopEntries
from equimetric.ops.blocks import slices
from equimetric.ops.masks import flatnonzero

__all__ = ["HalfMatrixCandidates", "candidate_capacity"]

SAMPLED = 512
"""Items sampled to guess the first bounds."""
SEARCH_CHUNK_SIZE = 2**19
"""Similarities searched at a time: they should stay in the cache."""
QUERY_CHUNK_SIZE = 16384
"""Queries whose candidates are merged at a time."""
SPARE_CAPACITY = 48
"""Candidates that a query can keep beyond three times the width."""


def candidate_capacity(width: int) -> int:
    """Number of candidates a query can keep before only the top ones stay."""
    return 3 * width + SPARE_CAPACITY


class HalfMatrixCandidates:
    """The `width` largest similarities of every query, and their indices in scan order."""

    def __init__(self, matrix: SimilarityMatrix, width: int) -> None:
        self.matrix, self.width, queries = matrix, width, len(matrix.order)
        shape = queries, candidate_capacity(width)
        self.values = torch.full(shape, -torch.inf, dtype=matrix.dtype, device=matrix.device)
        self.indices = torch.zeros(shape, dtype=torch.int32, device=matrix.device)
        self.counts = torch.zeros(queries, dtype=torch.int64, device=matrix.device)
        self.bounds = _guess_bounds(matrix, width)

    def take(self, strip: Strip) -> None:
        """Read a strip."""
        self._take_candidates(strip.similarity, strip.rows.start, strip.columns.start)
        later = strip.similarity[:, strip.num_own_columns :]
        self._take_candidates(later.T, strip.columns.start + strip.num_own_columns, strip.rows.start)

    def entries(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Values and indices (rows, width) of queries in a range of the scan's order, falling, after the last strip."""
        values, indices = self._leading(rows)
        too_few = flatnonzero((self.counts[rows] < self.width) & (self.bounds[rows] > -torch.inf))
        for block in slices(len(too_few), MIN_BLOCK_ROWS):
            which = too_few[block]
            top = TopEntries(len(which), self.width, self.matrix.dtype, self.matrix.device)
            for columns in slices(self.matrix.item_count, RERANK_COLUMNS):
                similarity = self.matrix.similarity(self.matrix.order[rows][which], columns=columns)
                top.take(similarity, columns.start)
            values[which], indices[which] = top.values, self.matrix.inverse_order[top.indices]
        return values, indices

    def _leading(self, rows: slice) -> tuple[Tensor, Tensor]:
        values, chosen = self.values[rows].topk(self.width, dim=1)
        return values, self.indices[rows].gather(1, chosen).long()

    def partial(self) -> tuple[Tensor, Tensor, Tensor]:
        """The top candidates from the strips so far, and their number for each query."""
        return *self._leading(slice(None)), self.counts.clamp(max=self.width)

    def merge(self, partial: tuple[Tensor, Tensor, Tensor]) -> None:
        """Merge candidates of other strips: the top ones of all candidates above the first bounds."""
        for queries in slices(len(self.counts), QUERY_CHUNK_SIZE):
            values, indices, counts = (part[queries] for part in partial)
            query, slot = (torch.arange(self.width, device=counts.device) < counts[:, None]).nonzero(as_tuple=True)
            self._keep(queries, query, values[query, slot], indices[query, slot].int())

    def _take_candidates(self, similarity: Tensor, first_query: int, first_item: int) -> None:
        """Read similarities (queries, items), both consecutive in scan order."""
        items = similarity.shape[1]
        if not items:
            return
        for rows in slices(len(similarity), max(1, SEARCH_CHUNK_SIZE // items)):
            block, queries = similarity[rows], slice(first_query + rows.start, first_query + rows.stop)
            above = flatnonzero((block > self.bounds[queries, None]).contiguous())
            query = above // items
            item = above - query * items
            self._keep(queries, query, _entries(block, query, item), (item + first_item).int())

    def _keep(self, queries: slice, query: Tensor, values: Tensor, indices: Tensor) -> None:
        """Keep candidates sorted by query; query numbers start at the first of `queries`."""
        new = torch.bincount(query, minlength=queries.stop - queries.start)
        total, capacity = self.counts[queries] + new, self.values.shape[1]
        slot = torch.arange(len(query), device=query.device) - (new.cumsum(0) - total).index_select(0, query)
        full = total > capacity
        if full.any():
            in_full = full.index_select(0, query)
            for mask, keep in ((in_full, self._keep_leading), (~in_full, self._write)):
                which = flatnonzero(mask)
                keep(queries, *(part.index_select(0, which) for part in (query, slot, values, indices)))
        else:
            self._write(queries, query, slot, values, indices)
        self.counts[queries] = total.masked_fill_(full, self.width)

    def _write(self, queries: slice, query: Tensor, slot: Tensor, values: Tensor, indices: Tensor) -> None:
        flat_index = (queries.start + query) * self.values.shape[1] + slot
        self.values.view(-1).index_copy_(0, flat_index, values)
        self.indices.view(-1).index_copy_(0, flat_index, indices)

    def _keep_leading(self, queries: slice, query: Tensor, slot: Tensor, values: Tensor, indices: Tensor) -> None:
        """Keep the top candidates of queries whose candidates do not fit: the smallest is the new bound."""
        which, line = torch.unique_consecutive(query, return_inverse=True)
        which += queries.start
        extra = int(slot.max()) + 1 - self.values.shape[1]
        all_values, all_indices = (
            pad(self.values[which], (0, extra), value=-torch.inf),
            pad(self.indices[which], (0, extra)),
        )
        flat_index = line * all_values.shape[1] + slot
        all_values.view(-1).index_copy_(0, flat_index, values)
        all_indices.view(-1).index_copy_(0, flat_index, indices)
        top_values, chosen = all_values.topk(self.width, dim=1)
        self.values[which] = pad(top_values, (0, self.values.shape[1] - self.width), value=-torch.inf)
        self.indices[which, : self.width] = all_indices.gather(1, chosen)
        self.bounds[which] = top_values[:, -1]


def _entries(matrix: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Entries of a matrix that may be a transposed view; several times faster than indexing by two tensors."""
    stored = sum((size - 1) * stride for size, stride in zip(matrix.shape, matrix.stride(), strict=True)) + 1
    indices = row * matrix.stride(0) + column * matrix.stride(1)
    return matrix.as_strided((stored,), (1,)).index_select(0, indices.view(-1)).view_as(indices)


def _guess_bounds(matrix: SimilarityMatrix, width: int) -> Tensor:
    """(N,) for each query in scan order, a similarity that `width` others probably exceed.

    Among m sampled items of N, width·m/N of the top items are expected, with the square root of that as deviation.
    """
    vectors, order = matrix.queries.vectors, matrix.order
    bounds = torch.full((len(order),), -torch.inf, dtype=vectors.dtype, device=vectors.device)
    if len(order) < 4 * SAMPLED:
        return bounds
    expected = width * SAMPLED / len(order)
    rank = math.ceil(expected + 3 * math.sqrt(expected) + 1)
    if rank > SAMPLED // 4:
        return bounds
    # Evenly spread over the scan order, so that every class has its share.
    sample = matrix.gallery.vectors[order[torch.arange(SAMPLED, device=order.device) * len(order) // SAMPLED]]
    for block in slices(len(order), 4 * SAMPLED):
        similarity = vectors.index_select(0, order[block]) @ sample.T
        bounds[block] = similarity.topk(rank, dim=1, sorted=False).values.amin(dim=1)
    return bounds
