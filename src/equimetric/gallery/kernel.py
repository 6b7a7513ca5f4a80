"""Whether this processor multiplies int8 codes faster than float32 vectors, measured once in a process."""

import time
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["multiplies_codes_fast"]

ROWS, ITEMS, COLUMNS = 64, 4096, 128
REPEATS = 5
CLEARLY = 0.8
"""Codes are used where they take at most this share of the time of float32."""


@lru_cache(maxsize=1)
def multiplies_codes_fast() -> bool:
    """Whether `torch._int_mm` is here, exact, and clearly faster than a product of float32."""
    queries, items = torch.full((ROWS, COLUMNS), 127, dtype=torch.int8), torch.full((ITEMS, COLUMNS), -127).char()
    try:
        # Kernels that add pairs of products in 16 bits would saturate here.
        exact = bool((torch._int_mm(queries, items.T) == -COLUMNS * 127**2).all())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    floats = queries.float(), items.float()
    return exact and _seconds(torch._int_mm, queries, items) < CLEARLY * _seconds(torch.mm, *floats)


def _seconds(multiply: Callable[[Tensor, Tensor], Tensor], queries: Tensor, items: Tensor) -> float:
    """The least time of a few products."""
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        multiply(queries, items.T)
        taken.append(time.perf_counter() - start)
    return min(taken)
