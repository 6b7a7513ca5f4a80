"""Products of int8 codes that are exact and faster than those of float32 vectors, found once in a process.

Processors with VNNI add products of int8 in 32 bits. Older ones add two products in 16 bits, of an unsigned first
factor: items, moved by 128, and queries up to 63 stay within them, 2 · 255 · 63 < 2¹⁵.
"""

import time
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["FULL", "HALF", "largest_query_code", "multiply_codes"]

FULL, HALF = 127, 63
"""Largest codes of queries."""
ROWS, ITEMS, COLUMNS = 64, 4096, 128
CHECKED = (1, 2, 16, ROWS)
"""Numbers of queries, for which libraries choose different kernels."""
REPEATS = 5
CLEARLY = 0.8
"""Codes are used where they take at most this share of the time of float32."""


@lru_cache(maxsize=1)
def largest_query_code() -> int | None:
    """The largest code of queries at which products are exact; None where they are not, or not clearly faster."""
    items = _extreme_codes(ITEMS, FULL)
    floats = torch.empty(ROWS, COLUMNS), torch.empty(COLUMNS, ITEMS)
    for largest in (FULL, HALF):
        queries = _extreme_codes(ROWS, largest)
        try:
            if all(_is_exact(queries[:rows], items[:ROWS], largest) for rows in CHECKED):
                codes = _seconds(lambda: multiply_codes(queries, items, largest))  # noqa: B023  (called at once)
                return largest if codes < CLEARLY * _seconds(lambda: torch.mm(*floats)) else None
        except (AttributeError, NotImplementedError, RuntimeError):
            return None
    return None


def multiply_codes(queries: Tensor, items: Tensor, largest: int) -> Tensor:
    """(Q, N) int32 products of queries (Q, C), up to `largest`, with items (N, C)."""
    if largest == FULL:
        return torch._int_mm(queries, items.T)
    # A single query would be taken for the unsigned factor.
    several = queries if len(queries) > 1 else queries.expand(2, -1).contiguous()
    return torch._int_mm(items, several.T)[:, : len(queries)].T.contiguous()


def _extreme_codes(rows: int, largest: int) -> Tensor:
    """Codes of the largest size, of equal and of mixed signs: what saturates first."""
    period = torch.arange(rows)[:, None] % 4 + 1
    return torch.where(torch.arange(COLUMNS) // period % 2 == 0, largest, -largest).to(torch.int8) * _signs(rows)


def _signs(rows: int) -> Tensor:
    return (1 - 2 * (torch.arange(rows) // 4 % 2)).to(torch.int8)[:, None]


def _is_exact(queries: Tensor, items: Tensor, largest: int) -> bool:
    return torch.equal(multiply_codes(queries, items, largest).long(), queries.long() @ items.long().T)


def _seconds(multiply: Callable[[], Tensor]) -> float:
    """The least time of a few products."""
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        multiply()
        taken.append(time.perf_counter() - start)
    return min(taken)
