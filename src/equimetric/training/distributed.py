"""Training in several processes: DDP, gathered batches, synchronised statistics, shards of batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from equimetric.batches import Batches, ShardedBatches
from equimetric.errors import EquimetricError
from equimetric.learners import Batch, Learner
from equimetric.processes import Processes
from equimetric.references.all_gather import GatherRows

__all__ = ["Trainable", "gather_outputs", "shard_batches", "sync_batch_norm", "wrap_ddp"]


class _DDPForward(nn.Module):
    """Wrap a learner for DDP: `forward` calls a function, and DDP tracks the parameters that it uses."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, function: Callable[[], Any]) -> Any:
        return function()


class Trainable:
    """A learner whose gradients are averaged over processes where there are several."""

    def __init__(self, learner: Learner, ddp: DistributedDataParallel | None = None) -> None:
        self.learner = learner
        self.ddp = ddp

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a part of the forward pass."""
        return function() if self.ddp is None else self.ddp(function)

    def sync(self, enabled: bool) -> AbstractContextManager[object]:
        """Average the gradients of backward passes inside the block over processes, if `enabled`."""
        return nullcontext() if self.ddp is None or enabled else self.ddp.no_sync()


def wrap_ddp(learner: Learner, processes: Processes) -> Trainable:
    """The learner as it is trained. Call it again whenever other parameters require gradients."""
    if not processes.is_distributed:
        return Trainable(learner)
    # A part that a step leaves out (frozen, or no pair active) is left out by all processes. Buffers are the same
    # everywhere, or batch statistics, which `sync_batch_norm` makes equal before they are used.
    with warnings.catch_warnings():
        # Newer versions of torch have another name for it, which older ones lack.
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
        return Trainable(
            learner, DistributedDataParallel(_DDPForward(learner), find_unused_parameters=True, broadcast_buffers=False)
        )


def gather_outputs(
    outputs: Mapping[str, Tensor], batch: Batch, processes: Processes
) -> tuple[dict[str, Tensor], Batch]:
    """Outputs (with gradient) and labels of the whole batch, in every process."""
    if not processes.is_distributed:
        return dict(outputs), batch
    sizes = processes.sizes(batch.labels)

    def gather(rows: Tensor) -> Tensor:
        gathered: Tensor = GatherRows.apply(rows, sizes)  # type: ignore[no-untyped-call]
        return gathered

    group = None if batch.group is None else gather(batch.group)
    weight = None if batch.weight is None else gather(batch.weight)
    whole = replace(batch, labels=gather(batch.labels), index=gather(batch.index), group=group, weight=weight)
    return {name: gather(rows) for name, rows in outputs.items()}, whole


def sync_batch_norm(learner: nn.Module, processes: Processes) -> None:
    """Take the first process's batch statistics: those of the others come from other images."""
    if processes.is_distributed:
        for module in learner.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                for buffer in module.buffers():
                    dist.broadcast(buffer, src=0)


def shard_batches(batches: Batches, processes: Processes) -> Iterator[Tensor]:
    """The rows of every batch that this rank owns, epoch after epoch, from the sampler's position on."""
    if not processes.is_distributed:
        return batches.stream()
    if batches.adapts:
        raise EquimetricError(
            f"batches of kind {type(batches).__name__} adapt to the embeddings of the whole batch, which no "
            "single process has; choose another batch.kind or start one process"
        )
    return ShardedBatches(batches, processes.rank, processes.world_size).stream()
