"""The positives of each query as a short list: they are few in large batches, and most losses look at them alone."""

from collections.abc import Iterator

import torch
from torch import Tensor

from equimetric.ops.masks import SPARSE_MIN_ENTRIES, SPARSE_RATIO, columns_of
from equimetric.pairs import Pairs

__all__ = ["Positives", "list_positives", "positives", "split_columns"]


MAX_TRIPLES_PER_PASS = 2**17
"""Triples that are computed in one pass; more of them would leave the processor's cache."""

MAX_TRACED_TRIPLES = 2**21
"""Up to this many, those of 128 samples, a compiled graph compares every reference with all others."""


class Positives:
    """The positives of each query, (Q, K) with K the maximum of any query, or all (Q, R) pairs where that is as fast.

    Attributes:
        mask: bool, which entries are positives.
        weight: their multiplicity, or None.

    """

    def __init__(self, pairs: Pairs, columns: Tensor | None, mask: Tensor) -> None:
        self.pairs = pairs
        self._columns = columns
        self.mask = mask

    @property
    def weight(self) -> Tensor | None:
        """The multiplicity of each entry, or None."""
        return None if self.pairs.weight is None else self.gather(self.pairs.weight)

    @property
    def columns(self) -> Tensor:
        """The column of each entry."""
        if self._columns is not None:
            return self._columns
        columns = torch.arange(self.pairs.similarity.shape[1], device=self.pairs.similarity.device)
        return columns.expand_as(self.pairs.similarity)

    def gather(self, values: Tensor) -> Tensor:
        """Gather the entries of (Q, R) values at the positives."""
        return values if self._columns is None else values.gather(1, self._columns)

    def split(self, entries: Tensor) -> Iterator[tuple["Positives", Tensor]]:
        """A few positives of every query at a time, with their part of the (Q, K) entries.

        What is computed for them against all references then stays in the processor's cache.
        """
        for columns, mask, part in split_columns((self.columns, self.mask, entries), self.pairs.similarity.numel()):
            yield Positives(self.pairs, columns, mask), part


def positives(pairs: Pairs) -> Positives:
    """The positives, for losses that look at the entries of each row in any order."""
    if pairs.similarity.numel() < SPARSE_MIN_ENTRIES or torch.compiler.is_compiling():
        return Positives(pairs, None, pairs.positive)
    columns, mask = columns_of(pairs.positive)
    if not 0 < SPARSE_RATIO * columns.shape[1] <= pairs.similarity.shape[1]:
        return Positives(pairs, None, pairs.positive)
    return Positives(pairs, columns, mask)


def list_positives(pairs: Pairs, *, static_shapes: bool = True) -> Positives:
    """The positives, for losses that compare each of them with the whole row.

    The length of the list depends on data. With `static_shapes` a compiled graph visits all columns instead, unless
    there are too many: then it ends here and the next one begins with the list.
    """
    few = pairs.similarity.numel() * pairs.similarity.shape[1] <= MAX_TRACED_TRIPLES
    if static_shapes and few and torch.compiler.is_compiling():
        return Positives(pairs, None, pairs.positive)
    return Positives(pairs, *columns_of(pairs.positive))


def split_columns(parts: tuple[Tensor, ...], pairs: int) -> Iterator[tuple[Tensor, ...]]:
    """Split (Q, K) tensors by columns: the fewer pairs there are, the more columns at a time."""
    chunk_size = max(1, MAX_TRIPLES_PER_PASS // max(1, pairs))
    if parts[0].shape[1] <= chunk_size:
        yield parts
    else:
        yield from zip(*(torch.split(part, chunk_size, dim=1) for part in parts), strict=True)
