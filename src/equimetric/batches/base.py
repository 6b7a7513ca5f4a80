"""What all batch samplers share: classes and their members, seeds, epochs, resuming."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, no_tensor
from equimetric.seeding import derive_seed

__all__ = ["Batches", "ClassBatches", "EmbeddingView", "draw_samples", "require_at_least", "require_samples"]

EmbeddingView = Callable[[], Tensor]
"""Gives the (N, D) embeddings of the training set when called."""


def require_at_least(least: int, **values: int) -> None:
    """Refuse what is no whole number, and numbers below `least`, naming them."""
    given: dict[str, object] = {**values}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise EquimetricError(f"{name} must be a whole number, got {value!r}")
    if any(value < least for value in values.values()):
        names = ", ".join(values)
        raise EquimetricError(f"{names} must be at least {least}, got {', '.join(map(str, values.values()))}")


def require_samples(samples: int, needed: int, unit: str) -> None:
    """Refuse a configured number of samples other than the one that the sampler's units have."""
    if samples != needed:
        raise EquimetricError(f"{unit} has {needed} samples, got {samples}; set batch.samples to {needed}")


def draw_samples(members: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """(number,) members: none twice if there are enough, else every one at least once and the rest again."""
    # `take` gives what indexing gives and is quicker; this runs for every class of every batch.
    once = members.take(torch.randperm(len(members), generator=generator)[:number])
    if len(once) == number:
        return once
    again = members[torch.randint(len(members), (number - len(once),), generator=generator)]
    return torch.cat([once, again])


class Batches(ABC):
    """A sampler of batches, as lists of indices into the training set.

    Batch t depends only on the seed, the epoch and t (and, where batches are mined, on what was mined), so a run
    resumes at any batch exactly. An epoch has `batches` batches or, where none are given, as many as make one pass over
    the training set. Usable as the `batch_sampler` of a `DataLoader`; one with workers fetches ahead, so that the
    `position` to save is the number of batches used, not the sampler's own.

    A batch is made of units, rows that have to stay together: the samples of a class, an anchor with its positive, an
    episode. A sampler says in `units` which they are; several processes share a batch by units (`ShardedBatches`).

    Attributes:
        labels: (N,) class ids of the training set.
        members: for each class, in order of class id, the indices of its samples.
        units_per_batch, samples_per_unit: the size of a batch.
        by_role: whether a batch lists the first samples of all units, then the second ones and so on, rather than
            unit after unit.

    """

    by_role: ClassVar[bool] = False

    def __init__(
        self, labels: Tensor, *, units_per_batch: int, samples_per_unit: int, batches: int | None, seed: int
    ) -> None:
        if not isinstance(labels, Tensor):
            raise no_tensor(labels, "labels")
        if labels.ndim != 1 or not len(labels):
            raise EquimetricError(f"labels must be a non-empty vector, got shape {tuple(labels.shape)}")
        if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
            raise EquimetricError(f"labels must be whole numbers, got {labels.dtype}; convert with labels.long()")
        if batches is None:
            batches = max(1, len(labels) // (units_per_batch * samples_per_unit))
        require_at_least(1, batches=batches)
        require_at_least(0, seed=seed)
        self.units_per_batch = units_per_batch
        self.samples_per_unit = samples_per_unit
        self.labels = labels.detach().cpu()
        sizes = torch.unique(self.labels, return_counts=True)[1]
        self.members = list(torch.split(self.labels.argsort(stable=True), sizes.tolist()))
        self.batches = batches
        self.seed = seed
        self.epoch = 0
        self.position = 0

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(cls) or "").splitlines()[0].rstrip(".")

    @classmethod
    @abstractmethod
    def sized(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """The constructor's options that make batches of `classes` × `samples` rows, next to these further options."""

    @abstractmethod
    def units(self, number: int) -> Tensor:
        """(units, samples of a unit) indices of batch `number`."""

    def arrange(self, units: Tensor) -> Tensor:
        """Units as the rows of a batch."""
        return (units.T if self.by_role else units).reshape(-1)

    def batch(self, number: int) -> Tensor:
        """(rows,) indices of batch `number`."""
        return self.arrange(self.units(number))

    def set_epoch(self, epoch: int) -> None:
        """Go to the first batch of an epoch."""
        require_at_least(0, epoch=epoch)
        self.epoch, self.position = epoch, 0

    def numbers(self) -> Iterator[int]:
        """The numbers of the batches that are left of this epoch; after the last the next epoch begins."""
        while self.position < len(self):
            number, self.position = self.position, self.position + 1
            yield number
        self.set_epoch(self.epoch + 1)

    def stream(self) -> Iterator[Tensor]:
        """Batches without end, epoch after epoch, from where the sampler stands."""
        while True:
            for number in self.numbers():
                yield self.batch(number)

    def refresh(self, embeddings: Tensor | EmbeddingView, labels: Tensor) -> None:  # noqa: B027
        """Look at the embeddings of the training set anew; of use to samplers that mine (`MinedBatches`)."""

    def take_clustering(self, clustering: tuple[Tensor, Tensor] | None) -> None:  # noqa: B027
        """Go by the clusters that the objective keeps, if any, from the next `refresh` on (`ClusterBatches`)."""

    def watch(self, embeddings: Tensor) -> None:  # noqa: B027
        """Look at the (rows, D) embeddings of the batch drawn last; of use to samplers that adapt to them."""

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        return (self.batch(number).tolist() for number in self.numbers())

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler stands."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a saved sampler stood."""
        missing = self.state_dict().keys() - state.keys()
        if missing:
            raise EquimetricError(
                f"this is not the state of {type(self).__name__}: it lacks {', '.join(sorted(missing))}; "
                "resume with the kind of batches that was saved"
            )
        self.seed, self.epoch, self.position = int(state["seed"]), int(state["epoch"]), int(state["position"])

    def generator(self, *purpose: int | str) -> torch.Generator:
        """A generator whose seed follows from the sampler's own and a purpose."""
        return torch.Generator().manual_seed(derive_seed(self.seed, *purpose))

    def batch_generator(self, number: int) -> torch.Generator:
        """The generator of batch `number` of this epoch."""
        return self.generator("batch", self.epoch, number)

    def walk(self, things: int, take: int, number: int) -> Tensor:
        """(take,) of `things` for draw `number` of this epoch: shuffled, none twice before the shuffle is used up."""
        draws = things // take
        order = torch.randperm(things, generator=self.generator("walk", self.epoch, number // draws))
        return order[number % draws * take :][:take]

    def samples_of(self, classes: list[int], number: int, generator: torch.Generator) -> Tensor:
        """(classes, number) samples of each of these classes."""
        return torch.stack([draw_samples(self.members[c], number, generator) for c in classes])

    def require_classes(self, number: int, what: str = "classes per batch") -> None:
        """Refuse batches of more classes than there are."""
        if number > len(self.members):
            raise EquimetricError(
                f"a batch of {number} classes cannot be drawn from {len(self.members)}; "
                f"set the {what} to {len(self.members)} or fewer"
            )


class ClassBatches(Batches):
    """Batches of `classes_per_batch` distinct classes with `samples_per_class` samples of each, C×M in short."""

    def __init__(
        self,
        labels: Tensor,
        *,
        classes_per_batch: int,
        samples_per_class: int,
        batches: int | None = None,
        seed: int = 0,
    ) -> None:
        require_at_least(1, classes_per_batch=classes_per_batch, samples_per_class=samples_per_class)
        super().__init__(
            labels,
            units_per_batch=classes_per_batch,
            samples_per_unit=samples_per_class,
            batches=batches,
            seed=seed,
        )
        self.require_classes(classes_per_batch)

    @classmethod
    def sized(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """Classes and samples as they are."""
        return {"classes_per_batch": classes, "samples_per_class": samples}
