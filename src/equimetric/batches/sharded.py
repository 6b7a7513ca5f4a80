"""One batch shared by several processes."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from equimetric.batches.base import Batches, require_at_least
from equimetric.errors import EquimetricError

__all__ = ["ShardedBatches"]


class ShardedBatches:
    """The part of each batch that belongs to one of several processes.

    All processes draw the same batch and each keeps some of its units: whole classes of a C×M batch, whole pairs,
    triples or episodes; equally many, or one more in some processes where they cannot be shared equally. The parts add
    up to exactly the batch.
    """

    def __init__(self, batches: Batches, rank: int, world_size: int) -> None:
        require_at_least(1, world_size=world_size)
        if not 0 <= rank < world_size:
            raise EquimetricError(f"the rank of one of {world_size} processes is 0 … {world_size - 1}, got {rank}")
        if batches.units_per_batch < world_size:
            raise EquimetricError(
                f"the {batches.units_per_batch} classes, pairs or episodes of a batch cannot be shared by "
                f"{world_size} processes; choose at least {world_size}"
            )
        self.batches = batches
        self.rank = rank
        self.world_size = world_size

    def batch(self, index: int) -> Tensor:
        """(rows of this process,) sample indices of batch `index`."""
        units = self.batches.units_per_batch
        first, stop = (units * rank // self.world_size for rank in (self.rank, self.rank + 1))
        return self.batches.arrange(self.batches.units(index)[first:stop])

    def stream(self) -> Iterator[Tensor]:
        """Endless batches, epoch after epoch, from the current position."""
        while True:
            for index in self.batches.batch_indices():
                yield self.batch(index)

    def set_epoch(self, epoch: int) -> None:
        """Go to the first batch of an epoch."""
        self.batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return (self.batch(index).tolist() for index in self.batches.batch_indices())

    def state_dict(self) -> dict[str, Any]:
        """Seed, epoch and position; the same for all processes."""
        return self.batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at a saved position."""
        self.batches.load_state_dict(state)
