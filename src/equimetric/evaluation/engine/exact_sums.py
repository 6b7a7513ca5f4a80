"""Sums without rounding: the same bits in any order and grouping of the terms."""

import torch
from torch import Tensor

__all__ = ["ExactSums"]

HIGH_BITS, LOW_BITS = 24, 38
"""Bits after the binary point that the two integers of a sum hold."""


class ExactSums:
    """N sums of numbers from 0 on, in fixed point: two 64-bit integers each.

    Numbers are rounded to multiples of 2^−62 before they are added. A sum may reach 2^38 and have 2^24 terms.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self.high, self.low = (torch.zeros(count, dtype=torch.int64, device=device) for _ in range(2))

    def add(self, index: Tensor, terms: Tensor) -> None:
        """Add terms (P,) float64 to the sums at `index` (P,)."""
        scaled = terms * 2.0**HIGH_BITS
        high = scaled.floor()
        self.high.index_add_(0, index, high.long())
        self.low.index_add_(0, index, ((scaled - high) * 2.0**LOW_BITS).round().long())

    def partial(self) -> tuple[Tensor, Tensor]:
        """The integers."""
        return self.high, self.low

    def merge(self, partial: tuple[Tensor, Tensor]) -> None:
        """Add other sums."""
        high, low = partial
        self.high += high
        self.low += low

    def total(self) -> Tensor:
        """(N,) float64."""
        return self.high.double() / 2.0**HIGH_BITS + self.low.double() / 2.0 ** (HIGH_BITS + LOW_BITS)
