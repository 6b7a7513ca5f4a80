"""Int8 codes of vectors, with an error bound for products of codes.

With x̂ = scale · codes(x) and likewise q̂,

    |q·x − q̂·x̂| = |q·(x − x̂) + (q − q̂)·x̂| ≤ ‖q‖ ‖x − x̂‖ + ‖q − q̂‖ ‖x̂‖,   ‖x̂‖ ≤ ‖x‖ + ‖x − x̂‖.

Codes of items have one scale, so that whole tiles of integer products are compared with one integer for each query.
No entry is cut off: a scale that does not fit is replaced, and all items are coded again.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["ItemQuantizer", "QueryCodes", "choose_balance", "choose_scale", "encode", "encode_queries"]

MAX_CODE = 127
SCALE_HEADROOM = 1.1
"""Headroom of a new scale, so that few later vectors need another one."""
MAX_SHIFT = 2.0**29
"""Largest shift of an item as an integer: added to products of up to 90,000 columns it fits into 32 bits."""


@dataclass(frozen=True)
class ItemQuantizer:
    """Quantisation parameters that the codes of all items share.

    scale    scale of the codes
    balance  factor of the first half of the columns before coding; queries are divided by it
    length   largest ‖x‖ of the coded columns
    shift    largest |shift|
    """

    scale: float
    balance: float
    length: float
    shift: float

    def balance_items(self, items: Tensor) -> Tensor:
        """(N, C) float64 columns, balanced for coding."""
        return items.double() * self._factors(items.shape[1])

    def balance_queries(self, queries: Tensor) -> Tensor:
        """(Q, C) queries whose products with the balanced items are those of the vectors."""
        return queries.double() if self.balance == 1 else queries.double() / self._factors(queries.shape[1])

    def _factors(self, columns: int) -> Tensor:
        factors = torch.ones(columns, dtype=torch.float64)
        factors[: columns // 2] = self.balance
        return factors


@dataclass(frozen=True)
class QueryCodes:
    """Queries as integers.

    codes     (Q, C) int8
    step      (Q,) affinity of 1 in an integer product: the quantisation step
    length    (Q,) ‖q‖
    residual  (Q,) ‖q − q̂‖
    """

    codes: Tensor
    step: NDArray[np.float64]
    length: NDArray[np.float64]
    residual: NDArray[np.float64]

    def error(self, items: ItemQuantizer, item_residual: float) -> NDArray[np.float64]:
        """(Q,) bound of |q·x − q̂·x̂| where ‖x − x̂‖ ≤ `item_residual`."""
        return self.length * item_residual + self.residual * (items.length + item_residual)


def choose_scale(largest: float, scale: float | None = None) -> float:
    """`scale`, if entries up to `largest` fit; else one that they fit with some room."""
    if scale is not None and largest <= MAX_CODE * scale:
        return scale
    return SCALE_HEADROOM * largest / MAX_CODE if largest > 0 else 1.0


def choose_balance(items: Tensor, halves: bool) -> float:
    """The power of two that brings both halves of the columns to one range; 1 where they are no halves."""
    if not halves:
        return 1.0
    half_columns = items.shape[1] // 2
    first, second = (float(half.abs().max()) for half in (items[:, :half_columns], items[:, half_columns:]))
    return float(2.0 ** torch.tensor(second / first).log2().round())


def encode(balanced: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Codes (N, C) int8 and residuals ‖x − x̂‖ (N,) float32, rounded up, at a scale that fits."""
    codes = torch.round(balanced / scale)
    residual = (balanced - codes * scale).norm(dim=1).float()
    return codes.to(torch.int8), torch.nextafter(residual, torch.tensor(torch.inf))


def encode_queries(queries: Tensor, items: ItemQuantizer, max_code: int = MAX_CODE) -> QueryCodes:
    """Integers of queries (Q, C), at most `max_code`.

    With shifts all queries have one scale, because a shift is added to the products of all of them.
    """
    # NumPy has less call overhead than PyTorch, which dominates for a single query.
    balanced: NDArray[np.float64] = items.balance_queries(queries).numpy()
    largest = np.abs(balanced).max(axis=1)
    if items.shift > 0:
        largest = np.full_like(largest, largest.max())
    min_scale = items.shift / items.scale / MAX_SHIFT
    scale = np.maximum(np.where(largest > 0, largest / max_code, 1.0), min_scale)
    codes = np.rint(balanced / scale[:, None])
    residual = _lengths(balanced - codes * scale[:, None])
    return QueryCodes(torch.from_numpy(codes.astype(np.int8)), scale * items.scale, _lengths(balanced), residual)


def _lengths(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) ‖x‖ of rows (N, C)."""
    lengths: NDArray[np.float64] = np.sqrt(np.vecdot(rows, rows))
    return lengths
