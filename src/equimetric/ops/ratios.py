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

__all__ = ["RatioHandler", "defer_ratios", "divide", "quotient", "ratio", "ratios_are_deferred"]


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Numerator / denominator; 0 with gradient 0 where the denominator is 0."""
    return numerator / torch.threshold(denominator, 0, torch.inf)


def quotient(numerator: Tensor, denominator: Tensor | None) -> Tensor:
    """Numerator / denominator, or the numerator where there is no denominator."""
    return numerator if denominator is None else divide(numerator, denominator)


class RatioHandler(Protocol):
    """Receives the ratios of a loss instead of dividing them."""

    def handle(self, numerator: Tensor, denominator: Tensor | None) -> Tensor:
        """Receive a ratio and return the value with which the loss continues."""


_handler: ContextVar[RatioHandler | None] = ContextVar("handler", default=None)


@contextmanager
def defer_ratios(handler: RatioHandler) -> Iterator[None]:
    """Hand every ratio to `handler` inside the block."""
    token = _handler.set(handler)
    try:
        yield
    finally:
        _handler.reset(token)


def ratios_are_deferred() -> bool:
    """Whether ratios are handed to a handler."""
    return _handler.get() is not None


def ratio(numerator: Tensor, denominator: Tensor | None) -> Tensor:
    """Sum of the numerator over all rows / sum of the denominator, a count; 0 where the count is 0.

    Gradients pass through the numerator only. Without a denominator it is the sum.
    """
    handler = None if torch.compiler.is_compiling() or rows_are_separate() else _handler.get()
    return quotient(numerator, denominator) if handler is None else handler.handle(numerator, denominator)
