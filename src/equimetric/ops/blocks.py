"""Passes over many vectors in blocks of bounded memory, in full precision."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

__all__ = [
    "TILE_BYTES",
    "RowReader",
    "directions",
    "disable_reduced_precision",
    "moderate_scale",
    "slices",
    "sum_by_group",
]

TILE_BYTES = 2**26

BLOCK_BYTES = 2**22
"""Bytes of float64 rows at a time: the allocator reuses blocks of this size, larger ones come from the system."""

MAX_SAFE_MAGNITUDE = 2.0**30
"""Squares and sums of squares of numbers up to this, and down to its reciprocal, are far from the ends of float32."""


def slices(total: int, step: int) -> list[slice]:
    """Consecutive slices of at most `step` that cover range(total)."""
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]


class RowReader(Protocol):
    """(N, D) vectors that are read some rows at a time: a tensor, or what behaves like one."""

    @property
    def shape(self) -> torch.Size:
        """(N, D)."""

    @property
    def device(self) -> torch.device:
        """The device of the rows."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor: ...


def sum_by_group(vectors: RowReader, group: Tensor, groups: int, *, unit: bool = False) -> Tensor:
    """Σ of the vectors (N, D) of each group (N,), or of their directions, in float64: (groups, D)."""
    sums = torch.zeros(groups, vectors.shape[1], dtype=torch.float64, device=vectors.device)
    for rows in slices(len(vectors), max(1, BLOCK_BYTES // (8 * vectors.shape[1]))):
        exact = vectors[rows].double()
        sums.index_add_(0, group[rows], directions(exact) if unit else exact)
    return sums


def directions(vectors: Tensor) -> Tensor:
    """Vectors (N, D) at unit length, in float64, however short or long they are; a zero vector stays zero."""
    exact = vectors.double()
    # What torch.nn.functional.normalize computes, without its calls: they take longer than a single vector.
    norm: Tensor = torch.linalg.vector_norm(exact, dim=1, keepdim=True)
    return exact / norm.clamp_min(1e-300)


def moderate_scale(vectors: Tensor) -> Tensor:
    """The vectors, multiplied by a power of 2, which rounds nothing, where their squares might over- or underflow."""
    max_magnitude = max(map(abs, torch.stack(vectors.aminmax()).tolist()))
    if not max_magnitude or 1 / MAX_SAFE_MAGNITUDE <= max_magnitude <= MAX_SAFE_MAGNITUDE:
        return vectors
    exponent = -math.frexp(max_magnitude)[1]
    # In two steps: the whole factor may be too large for float32.
    return vectors * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2)


@contextmanager
def disable_reduced_precision(device: torch.device) -> Iterator[None]:
    """Keep the caller's autocast and reduced-precision (TF32, bfloat16) products out of the measurement."""
    cuda = torch.backends.cuda.matmul
    precision, reduced = torch.get_float32_matmul_precision(), cuda.allow_bf16_reduced_precision_reduction
    torch.set_float32_matmul_precision("highest")
    cuda.allow_bf16_reduced_precision_reduction = False
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        cuda.allow_bf16_reduced_precision_reduction = reduced
