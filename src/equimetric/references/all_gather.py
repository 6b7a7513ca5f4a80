"""All-gather of batches: every rank has the whole batch and computes the whole loss."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from equimetric.errors import EquimetricError

__all__ = ["gather_batch", "gather_parts", "gather_sizes", "require_processes"]


def require_processes(option: str) -> None:
    """Raise an error where an option needs torch.distributed and it is not initialised."""
    if not (dist.is_available() and dist.is_initialized()):
        raise EquimetricError(f"{option} needs several processes; call torch.distributed.init_process_group first")


def gather_sizes(rows: Tensor) -> list[int]:
    """The number of rows that each rank holds."""
    size = torch.tensor([len(rows)], device=rows.device)
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    return [int(size) for size in sizes]


def gather_parts(rows: Tensor, sizes: list[int]) -> Tensor:
    """Concatenate the rows of all ranks, without gradient; parts are padded to the largest for the transfer."""
    padded = rows.new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


class GatherRows(torch.autograd.Function):
    """Concatenate the rows of all ranks; backward sums the gradients over ranks.

    Each of W ranks computes the same whole loss, so the sum is W times its gradient. Averaging the parameters'
    gradients over ranks, as `DistributedDataParallel` does, makes it exactly that of one process with the whole batch,
    for a loss's own parameters too.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        """All-gather."""
        ctx.sizes = sizes
        return gather_parts(rows, sizes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Slice the rows of this rank from the sum of all ranks' gradients."""
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        rank = dist.get_rank()
        start = sum(ctx.sizes[:rank])
        return total[start : start + ctx.sizes[rank]], None


def gather_batch(
    embeddings: Tensor, labels: Tensor, index: Tensor | None, weight: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gather embeddings (with gradient), labels, training-set positions and weights of all ranks' batches."""
    require_processes("gather=True")
    sizes = gather_sizes(embeddings)

    def gather(rows: Tensor) -> Tensor:
        result: Tensor = GatherRows.apply(rows, sizes)  # type: ignore[no-untyped-call]
        return result

    index, weight = (None if rows is None else gather(rows) for rows in (index, weight))
    return gather(embeddings), gather(labels), index, weight
