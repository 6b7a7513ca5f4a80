"""The processes that train one model together: rank, collective calls, random numbers per rank."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.references.all_gather import gather_parts, gather_sizes
from equimetric.seeding import derive_seed

__all__ = ["SINGLE", "Processes", "choose_device", "init_processes", "is_first_process"]

Value = TypeVar("Value")


@dataclass(frozen=True)
class Processes:
    """The process itself among those that train together: `rank` of `world_size`, `local_rank` on its machine."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @classmethod
    def current(cls) -> Processes:
        """The processes of the initialised process group; without one a single process."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", 0)))
        return cls()

    @property
    def is_distributed(self) -> bool:
        """Whether there is more than one process."""
        return self.world_size > 1

    @property
    def is_main(self) -> bool:
        """Whether this is the first process, which writes the files of the run."""
        return self.rank == 0

    def broadcast(self, value: Value) -> Value:
        """The first process's value, in all processes."""
        if not self.is_distributed:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.is_distributed:
            dist.barrier()

    def shard(self, n: int) -> range:
        """Index range owned by this rank, of n consecutive items."""
        return range(n * self.rank // self.world_size, n * (self.rank + 1) // self.world_size)

    def sizes(self, rows: Tensor) -> list[int]:
        """The number of rows that each process holds."""
        return gather_sizes(rows)

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes in rank order, without gradient, in all processes."""
        return gather_parts(rows, self.sizes(rows)) if self.is_distributed else rows

    def per_rank_rng(self, purpose: str = "", number: int = 0) -> AbstractContextManager[object]:
        """Inside the block every rank draws random numbers of its own, for a purpose and a batch.

        The generator is restored afterwards.
        """
        return per_rank_rng(self.rank, purpose, number) if self.is_distributed else nullcontext()


SINGLE = Processes()


def choose_device(requested: str) -> Literal["cpu", "cuda"]:
    """The kind of device that 'auto', 'cpu' or 'cuda' stands for on this machine."""
    return "cuda" if requested != "cpu" and torch.cuda.is_available() else "cpu"


def is_first_process() -> bool:
    """Whether this process reports to the user: the first of torchrun, or the only one."""
    return int(os.environ.get("RANK", 0)) == 0


@contextmanager
def per_rank_rng(rank: int, purpose: str, number: int) -> Iterator[None]:
    """Draw from a seed that depends on rank, purpose and number, then restore the generator."""
    state, seed = torch.get_rng_state(), torch.initial_seed()
    torch.manual_seed(derive_seed(seed, "rank", rank, purpose, number))
    try:
        yield
    finally:
        torch.manual_seed(seed)
        torch.set_rng_state(state)


@contextmanager
def init_processes(device: str) -> Iterator[Processes]:
    """The processes that torchrun started, connected inside the block; a single one without torchrun.

    A process group that the caller has initialised is used as it is.
    """
    if dist.is_available() and dist.is_initialized():
        yield Processes.current()
        return
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or "RANK" not in os.environ:
        yield SINGLE
        return
    if not dist.is_available():
        raise EquimetricError("this build of torch has no torch.distributed; install another or start one process")
    cuda = choose_device(device) == "cuda"
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if cuda:
        torch.cuda.set_device(local_rank)
    # Imported later, as by DistributedDataParallel, this module has the group among its default arguments and keeps it
    # alive; then threads of the group may abort the end of the interpreter.
    import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), local_rank)
    finally:
        dist.destroy_process_group()
