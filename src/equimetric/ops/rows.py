"""How the terms of queries are added up: every query once, by its multiplicity, or each query by itself.

Every reduction over queries sums their (Q, …) terms by `total`. Inside `weigh_rows(weight)` a query counts as often as
its weight says, in numerators and denominators alike; inside `separate_rows(Q)` sums stay apart, one for each query, so
that the same function of pairs gives the loss of each query by itself. Losses see none of it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.pairs import Pairs

__all__ = [
    "rows_are_separate",
    "separate_rows",
    "sum_rows",
    "total",
    "uses_plain_sum",
    "weigh_references",
    "weigh_rows",
    "weigh_terms",
]


class RowSum(NamedTuple):
    """How queries are added up: by (Q,) weights, or `separate` of them kept apart."""

    weight: Tensor | None = None
    separate: int | None = None


PLAIN_SUM = RowSum()
_sum: ContextVar[RowSum] = ContextVar("sum", default=PLAIN_SUM)


class TracedRowSum:
    """Used instead of the context variable while torch.compile traces, which does not support context variables."""

    sum = PLAIN_SUM


def current_row_sum() -> RowSum:
    """The mode in which queries are added up in the current context."""
    return TracedRowSum.sum if torch.compiler.is_compiling() else _sum.get()


@contextmanager
def row_sum_mode(mode: RowSum) -> Iterator[None]:
    """Add up queries in this way inside the block."""
    if torch.compiler.is_compiling():
        before, TracedRowSum.sum = TracedRowSum.sum, mode
        try:
            yield
        finally:
            TracedRowSum.sum = before
        return
    token = _sum.set(mode)
    try:
        yield
    finally:
        _sum.reset(token)


def weigh_rows(weight: Tensor | None) -> AbstractContextManager[None]:
    """Count each query as often as its (Q,) weight says inside the block; None counts each once."""
    return row_sum_mode(RowSum(weight=weight))


def separate_rows(num_queries: int) -> AbstractContextManager[None]:
    """Keep the sums of this number of queries apart inside the block, whatever their weights."""
    return row_sum_mode(RowSum(separate=num_queries))


def weigh_references(pairs: Pairs) -> AbstractContextManager[None]:
    """Count each reference as often as its weight says inside the block, for sums over references in place of queries.

    Where sums are kept apart they stay so, and reference j belongs to query j.
    """
    if rows_are_separate() or pairs.weight is None:
        return row_sum_mode(current_row_sum() if rows_are_separate() else PLAIN_SUM)
    return weigh_rows(pairs.weight.amax(0))


def rows_are_separate() -> bool:
    """Whether sums of queries are kept apart."""
    return current_row_sum().separate is not None


def uses_plain_sum() -> bool:
    """Whether sums run over all queries, each counted once: what kernels with a gradient of their own compute."""
    mode = current_row_sum()
    return mode.weight is None and mode.separate is None


def total(terms: Tensor, rows: Tensor | None = None) -> Tensor:
    """Σ over all queries of their terms, by multiplicity, or (Q,) sums where they are kept apart.

    The queries are the first dimension of `terms`, or, of listed (T,) terms, the (T,) `rows`.
    """
    mode = current_row_sum()
    if mode.weight is None and mode.separate is None:
        return terms.sum()
    num_queries = len(mode.weight) if mode.weight is not None else mode.separate
    assert num_queries is not None
    if rows is not None:
        by_row = terms.new_zeros(num_queries).index_add(0, rows, terms)
    elif terms.ndim and len(terms) == num_queries:
        by_row = terms.flatten(1).sum(1) if terms.ndim > 1 else terms
    else:
        raise EquimetricError(
            "this loss does not add up its queries one by one, so it takes no sample weights and has no value per query"
        )
    return by_row if mode.weight is None else torch.dot(by_row, mode.weight.to(terms.dtype))


def sum_rows(counts: Tensor) -> Tensor:
    """(Q, N) → (N,) sums over all queries, by multiplicity; (Q, N) unchanged where they are kept apart."""
    mode = current_row_sum()
    if mode.separate is not None:
        return counts
    return counts.sum(0) if mode.weight is None else mode.weight.to(counts.dtype) @ counts


def weigh_terms(terms: Tensor, rows: Tensor | None = None) -> Tensor:
    """(Q,) values of queries, or (T,) listed terms of the queries `rows`, times the multiplicity of their query."""
    weight = current_row_sum().weight
    if weight is None:
        return terms
    return terms * (weight if rows is None else weight[rows]).to(terms.dtype)
