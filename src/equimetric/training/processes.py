"""One run in several processes: `torchrun --nproc-per-node N -m equimetric train run.toml`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from equimetric.batches import Batches, ShardedBatches
from equimetric.errors import EquimetricError
from equimetric.learners import Learner
from equimetric.references.gathered import gather_parts
from equimetric.seeding import derive_seed

__all__ = ["Processes", "is_first_process", "several_processes"]

Value = TypeVar("Value")


@dataclass(frozen=True)
class Processes:
    """One of the processes that train together: number `rank` of `world`, `local_rank` of those on its machine.

    Each takes its share of every batch, computes the loss of the whole batch, and averages gradients with the others.
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @property
    def several(self) -> bool:
        """Whether there are others."""
        return self.world > 1

    @property
    def writes(self) -> bool:
        """Whether this is the one process that writes files."""
        return self.rank == 0

    def joined(self, learner: Learner) -> Learner | DistributedDataParallel:
        """The learner as it is trained: its gradients are averaged over processes."""
        if not self.several:
            return learner
        # A part that a step leaves out (frozen, or no pair active) is left out by all processes alike. Buffers are
        # either the same everywhere, or batch statistics, which `agree` brings together before they are used.
        with warnings.catch_warnings():
            # Newer versions of torch have another name for it, which older ones do not know.
            warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
            return DistributedDataParallel(learner, find_unused_parameters=True, broadcast_buffers=False)

    def stream(self, batches: Batches) -> Iterator[Tensor]:
        """The rows of this process of every batch, epoch after epoch, from where the sampler stands."""
        if not self.several:
            return batches.stream()
        if type(batches).watch is not Batches.watch:
            raise EquimetricError(
                f"batches of kind {type(batches).__name__} adapt to the embeddings of the whole batch, which no one of "
                "several processes forms; choose another batch.kind or start one process"
            )
        return ShardedBatches(batches, self.rank, self.world).stream()

    def own_draws(self) -> AbstractContextManager[object]:
        """Inside the block every process draws random numbers of its own; after it all go on alike, as before it."""
        return own_draws(self.rank) if self.several else nullcontext()

    def agree(self, learner: nn.Module) -> None:
        """Take the first process's batch statistics: those of the others come from other images."""
        if self.several:
            for module in learner.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    for buffer in module.buffers():
                        dist.broadcast(buffer, src=0)

    def told(self, value: Value) -> Value:
        """The first process's value, in all processes."""
        if not self.several:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def wait(self) -> None:
        """Go on when all processes have come here."""
        if self.several:
            dist.barrier()

    def part(self, number: int) -> range:
        """The consecutive things of so many that fall to this process."""
        return range(number * self.rank // self.world, number * (self.rank + 1) // self.world)

    def gathered(self, rows: Tensor) -> Tensor:
        """The rows of all processes, one after another, in all processes."""
        if not self.several:
            return rows
        size = torch.tensor([len(rows)], device=rows.device)
        sizes = [torch.empty_like(size) for _ in range(self.world)]
        dist.all_gather(sizes, size)
        return gather_parts(rows, [int(one) for one in sizes])


def is_first_process() -> bool:
    """Whether torchrun has started this process as the first, or not at all: the one that speaks to the user."""
    return int(os.environ.get("RANK", 0)) == 0


@contextmanager
def own_draws(rank: int) -> Iterator[None]:
    """Draw from a seed that depends on the rank, and afterwards go on as if nothing had been drawn."""
    state, seed = torch.get_rng_state(), torch.initial_seed()
    torch.manual_seed(derive_seed(seed, "rank", rank))
    try:
        yield
    finally:
        torch.manual_seed(seed)
        torch.set_rng_state(state)


@contextmanager
def several_processes(device: str) -> Iterator[Processes]:
    """The processes that torchrun has started, talking to each other inside the block; one where it has not.

    A process group that the caller has made already is used as it is.
    """
    if dist.is_available() and dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", 0)))
        return
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or "RANK" not in os.environ:
        yield Processes()
        return
    if not dist.is_available():
        raise EquimetricError("this build of torch has no torch.distributed; install another or start one process")
    on_card = torch.cuda.is_available() and device != "cpu"
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if on_card:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if on_card else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), local_rank)
    finally:
        dist.destroy_process_group()
