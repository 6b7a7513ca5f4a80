"""Class weights split over ranks: each rank stores the rows of some classes and none stores all."""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.ops.gradients import scale_gradient
from equimetric.references.all_gather import gather_parts, require_processes

__all__ = ["Shard"]


@dataclass(frozen=True)
class Shard:
    """The classes of this rank: consecutive ones, C // W of them, and one more on the first C mod W ranks.

    Every rank computes the whole loss from the whole (B, C) similarity matrix, to which each rank contributes the
    columns of its own classes. The state per class (weights, gradients, the optimiser's moments) and the product with
    the embeddings are split over ranks; the matrix is not, but sampled classes make it narrow.
    """

    sizes: tuple[int, ...]
    rank: int

    @classmethod
    def unsharded(cls, classes: int) -> "Shard":
        """All classes on one rank."""
        return cls((classes,), 0)

    @classmethod
    def current(cls, classes: int) -> "Shard":
        """The shard of this rank of torch.distributed."""
        require_processes("sharded=True")
        world = dist.get_world_size()
        if classes < world:
            raise EquimetricError(f"{classes} classes cannot be split over {world} processes; set sharded=False")
        sizes = tuple(classes // world + (rank < classes % world) for rank in range(world))
        return cls(sizes, dist.get_rank())

    @property
    def is_sharded(self) -> bool:
        """Whether other ranks hold other classes."""
        return len(self.sizes) > 1

    @property
    def size(self) -> int:
        """Number of classes of this rank."""
        return self.sizes[self.rank]

    @property
    def bounds(self) -> tuple[int, ...]:
        """The first class of each rank, and the number of all classes."""
        return (0, *accumulate(self.sizes))

    def local_ids(self, ids: Tensor) -> tuple[Tensor, list[int]]:
        """Split ascending class ids: this rank's as offsets into its classes, and the number of ids of each rank."""
        bounds = torch.searchsorted(ids, torch.tensor(self.bounds, device=ids.device)).tolist()
        counts = [stop - start for start, stop in pairwise(bounds)]
        return ids[bounds[self.rank] : bounds[self.rank + 1]] - self.bounds[self.rank], counts

    def gather(self, rows: Tensor, counts: list[int]) -> Tensor:
        """The rows of all ranks, in order of class; backward passes this rank's rows their gradient."""
        if not self.is_sharded:
            return rows
        gathered: Tensor = GatherShards.apply(rows, counts, self.rank)  # type: ignore[no-untyped-call]
        return gathered

    def gather_columns(self, columns: Tensor, counts: list[int]) -> Tensor:
        """`gather` for (B, ·) columns."""
        return self.gather(columns.T, counts).T if self.is_sharded else columns

    def scale_gradient(self, embeddings: Tensor) -> Tensor:
        """The embeddings, with their gradient times the number of ranks W.

        `gather=True` sums the gradients of all ranks and expects W equal ones, to be averaged later. Here each rank
        has the part of its own classes, so the sum is W times too small.
        """
        if not self.is_sharded:
            return embeddings
        return scale_gradient(embeddings, len(self.sizes))

    def require_same_batch(self, labels: Tensor, seed: int | None = None) -> None:
        """Raise an error where ranks have different batches, or sample classes by different seeds."""
        if not self.is_sharded:
            return
        index = torch.arange(1, len(labels) + 1, device=labels.device)
        summary = torch.stack([(index * labels).sum(), index.new_tensor(len(labels)), index.new_tensor(seed or 0)])
        summaries = [torch.empty_like(summary) for _ in self.sizes]
        dist.all_gather(summaries, summary)
        if not all(torch.equal(other[:2], summary[:2]) for other in summaries):
            raise EquimetricError("sharded=True needs the same batch in all processes; give gather=True beside it")
        if not all(torch.equal(other, summary) for other in summaries):
            raise EquimetricError(
                "the processes would sample different classes; call torch.manual_seed with one seed for all "
                "before building the objective"
            )


class GatherShards(torch.autograd.Function):
    """Concatenate the rows of all ranks, which then compute the same loss."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int], rank: int) -> Tensor:
        """All-gather."""
        ctx.start, ctx.stop = sum(counts[:rank]), sum(counts[: rank + 1])
        return gather_parts(rows, counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Slice the gradient of this rank's rows; it is complete without the other ranks."""
        return gradients[0][ctx.start : ctx.stop], None, None
