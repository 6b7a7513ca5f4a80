"""Passes over many vectors in blocks of bounded memory, in full precision."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["TILE_BYTES", "disable_reduced_precision", "slices", "sum_by_group"]

TILE_BYTES = 2**26


def slices(total: int, step: int) -> list[slice]:
    """Consecutive slices of at most `step` that cover range(total)."""
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]


def sum_by_group(vectors: Tensor, group: Tensor, groups: int, *, unit: bool = False) -> Tensor:
    """Σ of the vectors (N, D) of each group (N,), or of their directions, in float64: (groups, D)."""
    sums = torch.zeros(groups, vectors.shape[1], dtype=torch.float64, device=vectors.device)
    # Large blocks: each costs a pass over all sums as well.
    for rows in slices(len(vectors), max(1, TILE_BYTES // (8 * vectors.shape[1]))):
        exact = vectors[rows].double()
        sums.index_add_(0, group[rows], normalize(exact, dim=1) if unit else exact)
    return sums


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
