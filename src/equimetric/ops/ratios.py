"""Quotients of sums over rows, the last step of every loss.

`ops.chunks` defers them: it sums numerators and denominators over parts of a batch before they are divided.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch
from torch import Tensor

from equimetric.ops.rows import rows_are_separate

__all__ = ["RatioTaker", "defer_ratios", "divide", "quotient", "ratio", "ratios_are_deferred"]


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Numerator / denominator; 0 with gradient 0 where the denominator is 0."""
    return numerator / torch.threshold(denominator, 0, torch.inf)


def quotient(numerator: Tensor, denominator: Tensor | None) -> Tensor:
    """Numerator / denominator, or the numerator where there is no denominator."""
    return numerator if denominator is None else divide(numerator, denominator)


class RatioTaker(Protocol):
    """Receives the ratios of a loss instead of dividing them."""

    def take(self, numerator: Tensor, denominator: Tensor | None) -> Tensor:
        """Receive a ratio and return the value with which the loss continues."""


_taker: ContextVar[RatioTaker | None] = ContextVar("taker", default=None)


@contextmanager
def defer_ratios(taker: RatioTaker) -> Iterator[None]:
    """Hand every ratio to `taker` inside the block."""
    token = _taker.set(taker)
    try:
        yield
    finally:
        _taker.reset(token)


def ratios_are_deferred() -> bool:
    """Whether ratios are handed to a taker."""
    return _taker.get() is not None


def ratio(numerator: Tensor, denominator: Tensor | None) -> Tensor:
    """Sum of the numerator over all rows / sum of the denominator, a count; 0 where the count is 0.

    Gradients pass through the numerator only. Without a denominator it is the sum.
    """
    taker = None if torch.compiler.is_compiling() or rows_are_separate() else _taker.get()
    return quotient(numerator, denominator) if taker is None else taker.take(numerator, denominator)
