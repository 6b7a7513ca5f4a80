"""The batches of all processes as one: every process sees the whole batch and computes the whole loss."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from equimetric.errors import EquimetricError

__all__ = ["gather_batch", "gather_parts", "require_processes"]


def require_processes(option: str) -> None:
    """Refuse an option that is for several processes where there is only this one."""
    if not (dist.is_available() and dist.is_initialized()):
        raise EquimetricError(f"{option} needs several processes; call torch.distributed.init_process_group first")


def gather_parts(rows: Tensor, sizes: list[int]) -> Tensor:
    """The rows of all processes, one after another, without gradient; parts are padded to the largest on the way."""
    padded = rows.new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


class GatherRows(torch.autograd.Function):
    """Rows of all processes, one after another; gradients are summed over processes on the way back.

    Each of W processes computes the same whole loss, so the sum is W times its gradient. Averaging the parameters'
    gradients over processes, as `DistributedDataParallel` does, makes it exactly that of one process with the whole
    batch, for a loss's own parameters too.
    """

    @staticmethod
    def forward(context: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        """Gather."""
        context.sizes = sizes
        return gather_parts(rows, sizes)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The own rows' share of the sum of all processes' gradients."""
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        rank = dist.get_rank()
        start = sum(context.sizes[:rank])
        return total[start : start + context.sizes[rank]], None


def gather_batch(embeddings: Tensor, labels: Tensor, index: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Embeddings (with gradient), labels and places in the training set of all processes' batches."""
    require_processes("gather=True")
    size = torch.tensor([len(embeddings)], device=embeddings.device)
    gathered = [torch.empty_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, size)
    sizes = [int(one) for one in gathered]

    def gather(rows: Tensor) -> Tensor:
        result: Tensor = GatherRows.apply(rows, sizes)  # type: ignore[no-untyped-call]
        return result

    return gather(embeddings), gather(labels), None if index is None else gather(index)
