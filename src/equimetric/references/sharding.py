"""Class weights shared out among processes: each keeps the rows of some classes and none keeps all."""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.references.gathered import gather_parts, require_processes

__all__ = ["Shard"]


@dataclass(frozen=True)
class Shard:
    """The classes of this process: consecutive ones, an equal number for all, but one more for the first C mod W.

    Every process computes the whole loss from the whole (B, C) similarity matrix, to which each has contributed the
    columns of its own classes. What is kept per class (weights, their gradients, the optimiser's moments) and the
    product with the embeddings are shared out; the matrix is not, but sampled classes make it narrow.
    """

    sizes: tuple[int, ...]
    rank: int

    @classmethod
    def whole(cls, classes: int) -> "Shard":
        """All classes, in one process."""
        return cls((classes,), 0)

    @classmethod
    def of_this_process(cls, classes: int) -> "Shard":
        """The part of this one of the processes of torch.distributed."""
        require_processes("sharded=True")
        world = dist.get_world_size()
        if classes < world:
            raise EquimetricError(f"{classes} classes cannot be shared by {world} processes; set sharded=False")
        sizes = tuple(classes // world + (rank < classes % world) for rank in range(world))
        return cls(sizes, dist.get_rank())

    @property
    def shared(self) -> bool:
        """Whether there are other processes with other classes."""
        return len(self.sizes) > 1

    @property
    def own(self) -> int:
        """How many classes this process keeps."""
        return self.sizes[self.rank]

    @property
    def bounds(self) -> tuple[int, ...]:
        """The first class of each process, and the number of all classes."""
        return (0, *accumulate(self.sizes))

    def places(self, ids: Tensor) -> tuple[Tensor, list[int]]:
        """Of ascending class ids: places of those that are here, among the own classes; how many each process has."""
        bounds = torch.searchsorted(ids, torch.tensor(self.bounds, device=ids.device)).tolist()
        counts = [stop - start for start, stop in pairwise(bounds)]
        return ids[bounds[self.rank] : bounds[self.rank + 1]] - self.bounds[self.rank], counts

    def join(self, rows: Tensor, counts: list[int]) -> Tensor:
        """The rows of all processes, in order of class; what flows back is the gradient of the own rows."""
        if not self.shared:
            return rows
        joined: Tensor = JoinRows.apply(rows, counts, self.rank)  # type: ignore[no-untyped-call]
        return joined

    def join_columns(self, columns: Tensor, counts: list[int]) -> Tensor:
        """The (B, ·) columns of all processes, as `join` does with rows."""
        return self.join(columns.T, counts).T if self.shared else columns

    def spread(self, embeddings: Tensor) -> Tensor:
        """The embeddings as they are compared with the own classes.

        All processes' gradients of them are summed by `gather=True`, which counts on W equal ones to be averaged
        later. Here each is the part of the own classes, so their sum is W times too small.
        """
        if not self.shared:
            return embeddings
        scaled: Tensor = ScaleGradient.apply(embeddings, len(self.sizes))  # type: ignore[no-untyped-call]
        return scaled

    def require_same_batch(self, labels: Tensor, seed: int | None = None) -> None:
        """Refuse to join the columns of different batches, or of classes drawn by different seeds."""
        if not self.shared:
            return
        place = torch.arange(1, len(labels) + 1, device=labels.device)
        summary = torch.stack([(place * labels).sum(), place.new_tensor(len(labels)), place.new_tensor(seed or 0)])
        summaries = [torch.empty_like(summary) for _ in self.sizes]
        dist.all_gather(summaries, summary)
        if not all(torch.equal(one[:2], summary[:2]) for one in summaries):
            raise EquimetricError("sharded=True needs the same batch in all processes; give gather=True beside it")
        if not all(torch.equal(one, summary) for one in summaries):
            raise EquimetricError(
                "the processes would compare with different classes; call torch.manual_seed with one seed for all "
                "before making the objective"
            )


class JoinRows(torch.autograd.Function):
    """Rows of all processes, one after another, where all processes then compute the same loss."""

    @staticmethod
    def forward(context: Any, rows: Tensor, counts: list[int], rank: int) -> Tensor:
        """Gather."""
        context.start, context.stop = sum(counts[:rank]), sum(counts[: rank + 1])
        return gather_parts(rows, counts)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The own rows' gradient, which no other process has a part in."""
        return gradients[0][context.start : context.stop], None, None


class ScaleGradient(torch.autograd.Function):
    """The identity, with its gradient times a factor."""

    @staticmethod
    def forward(context: Any, values: Tensor, factor: int) -> Tensor:
        """The values themselves."""
        context.factor = factor
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Scaled."""
        return gradients[0] * context.factor, None
