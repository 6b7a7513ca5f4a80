"""Products of int8 codes, and whether they are faster than those of float32 vectors, measured once per process.

Processors with VNNI add products of int8 in 32 bits. Older ones add two products in 16 bits, of an unsigned first
factor: items, moved by 128, and queries up to 63 stay within them, 2 · 255 · 63 < 2¹⁵.

A product with a single query reads each item once and waits for the memory. Without VNNI that of integers does not keep
up; one that converts codes to float32 does. It rounds its results to bfloat16, which the bounds of codes can bear.
"""

import time
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "BFLOAT16_ERROR",
    "FULL",
    "HALF",
    "SingleKernel",
    "choose_single_kernel",
    "max_query_code",
    "multiply_codes",
    "multiply_codes_rounded",
    "multiply_floats",
]

SingleKernel = Literal["codes", "rounded codes", "floats"]
"""Kernel that multiplies a single query with items."""

FULL, HALF = 127, 63
"""Largest codes of queries."""
ROWS, ITEMS, COLUMNS = 64, 4096, 128
QUERY_COUNTS = (1, 2, 16, ROWS)
"""Numbers of queries, for which libraries choose different kernels."""
REPEATS = 5
MAX_TIME_RATIO = 0.8
"""Codes of several queries are used where they take at most this share of the time of float32."""
COLUMN_ALIGNMENT = 16
"""Columns that the rounding kernel reads at a time."""
BFLOAT16_ERROR = 2.0**-8
"""Relative error of a product that is rounded to bfloat16."""


@lru_cache(maxsize=1)
def max_query_code() -> int | None:
    """The largest code of queries at which products are exact; None where they are not, or not clearly faster."""
    items = _extreme_codes(ITEMS, FULL)
    floats = torch.ones(ROWS, COLUMNS), torch.ones(COLUMNS, ITEMS)
    for largest in (FULL, HALF):
        queries = _extreme_codes(ROWS, largest)
        try:
            if all(_is_exact(queries[:rows], items[:ROWS], largest) for rows in QUERY_COUNTS):
                codes = _seconds(lambda: multiply_codes(queries, items, largest))  # noqa: B023  (called at once)
                return largest if codes < MAX_TIME_RATIO * _seconds(lambda: torch.mm(*floats)) else None
        except (AttributeError, NotImplementedError, RuntimeError):
            return None
    return None


def choose_single_kernel(largest: int | None, columns: int) -> SingleKernel:
    """The fastest product of one query with items of `columns`, where that of several has codes up to `largest`."""
    return _measure_single_kernels(largest, columns % COLUMN_ALIGNMENT == 0)


@cache
def _measure_single_kernels(largest: int | None, aligned: bool) -> SingleKernel:
    queries, items = _extreme_codes(1, FULL), _extreme_codes(ITEMS, FULL)
    floats = np.ones(COLUMNS, np.float32), np.ones((ITEMS, COLUMNS), np.float32)
    # Measured in the cache. Beyond it codes gain more, since they read a quarter of the memory.
    seconds: dict[SingleKernel, float] = {"floats": _seconds(lambda: multiply_floats(*floats))}
    if largest is not None:
        max_queries = _extreme_codes(1, largest)
        seconds["codes"] = _seconds(lambda: multiply_codes(max_queries, items, largest))
    if aligned and _rounds_correctly():
        seconds["rounded codes"] = _seconds(lambda: multiply_codes_rounded(queries, items))
    return min(seconds, key=lambda kernel: seconds[kernel])


def multiply_codes(queries: Tensor, items: Tensor, largest: int) -> Tensor:
    """(Q, N) int32 products of queries (Q, C), up to `largest`, with items (N, C)."""
    if largest == FULL:
        return torch._int_mm(queries, items.T)
    # With a single query the library would take it for the unsigned factor.
    padded = queries if len(queries) > 1 else queries.expand(2, -1).contiguous()
    return torch._int_mm(items, padded.T)[:, : len(queries)].T.contiguous()


def multiply_codes_rounded(query: Tensor, items: Tensor) -> Tensor:
    """(1, N) float32 products of a query (1, C) with items (N, C), up to `ROUNDED_ERROR` and the rounding of sums."""
    # Codes are whole numbers up to 127, which bfloat16 holds. The copy is aligned, which the kernel expects.
    scales = torch.ones(len(items), dtype=torch.bfloat16)
    return torch._weight_int8pack_mm(query.bfloat16(), items, scales).float()


def multiply_floats(query: NDArray[np.float32], items: NDArray[np.float32]) -> Tensor:
    """(1, N) products of a query (C,) with items (N, C)."""
    # Reads as fast as memory allows, which a product of matrices with one row does not everywhere.
    return torch.from_numpy(np.vecdot(items, query))[None]


def _rounds_correctly() -> bool:
    """Whether the rounding kernel is available and its products are within the error bound."""
    query, items = _extreme_codes(1, FULL), _extreme_codes(ROWS, FULL)
    items[::3] = torch.arange(COLUMNS) - COLUMNS // 2
    try:
        products = multiply_codes_rounded(query, items).double()
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    exact = (query.long() @ items.long().T).double()
    return bool(((products - exact).abs() <= BFLOAT16_ERROR * exact.abs()).all())


def _extreme_codes(rows: int, largest: int) -> Tensor:
    """Codes of the largest magnitude, of equal and of mixed signs, which saturate first."""
    period = torch.arange(rows)[:, None] % 4 + 1
    return torch.where(torch.arange(COLUMNS) // period % 2 == 0, largest, -largest).to(torch.int8) * _signs(rows)


def _signs(rows: int) -> Tensor:
    return (1 - 2 * (torch.arange(rows) // 4 % 2)).to(torch.int8)[:, None]


def _is_exact(queries: Tensor, items: Tensor, largest: int) -> bool:
    return torch.equal(multiply_codes(queries, items, largest).long(), queries.long() @ items.long().T)


def _seconds(multiply: Callable[[], Tensor]) -> float:
    """The minimum time of a few products."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        multiply()
        times.append(time.perf_counter() - start)
    return min(times)
