"""The base of all batch samplers: classes and their members, seeds, epochs, resuming."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor

from equimetric.batches.groups import Groups
from equimetric.errors import EquimetricError, not_a_tensor
from equimetric.seeding import derive_seed

__all__ = ["Batches", "ClassBatches", "EmbeddingView", "draw_samples", "require_at_least", "require_samples"]

EmbeddingView = Callable[[], Tensor]
"""Returns the (N, D) embeddings of the training set when called."""


def require_at_least(minimum: int, **values: int) -> None:
    """Raise an error for values that are not whole numbers or below `minimum`."""
    checked: dict[str, object] = {**values}
    for name, value in checked.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise EquimetricError(f"{name} must be a whole number, got {value!r}")
    if any(value < minimum for value in values.values()):
        names = ", ".join(values)
        raise EquimetricError(f"{names} must be at least {minimum}, got {', '.join(map(str, values.values()))}")


def require_samples(samples: int, needed: int, unit: str) -> None:
    """Raise an error where the configured number of samples is not the fixed number of the sampler's units."""
    if samples != needed:
        raise EquimetricError(f"{unit} has {needed} samples, got {samples}; set batch.samples to {needed}")


def draw_samples(members: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """(n,) members without repetition if there are enough, else each at least once and some repeated."""
    # `take` is faster than indexing; this runs for every class of every batch.
    unique = members.take(torch.randperm(len(members), generator=generator)[:n])
    if len(unique) == n:
        return unique
    repeats = members[torch.randint(len(members), (n - len(unique),), generator=generator)]
    return torch.cat([unique, repeats])


class Batches(ABC):
    """A sampler of batches, as lists of indices into the training set.

    Batch t depends only on the seed, the epoch and t (and on the last `refresh`, where batches are mined), so a run
    resumes exactly at any batch. An epoch has `batches` batches, by default as many as make one pass over the training
    set. Usable as the `batch_sampler` of a `DataLoader`; with workers, which fetch ahead, save the number of batches
    used as `position`, not the sampler's own.

    A batch consists of units, rows that stay together: the samples of a class, an anchor with its positive, an
    episode. `units` returns them; several processes share a batch by units (`ShardedBatches`).

    Attributes:
        labels: (N,) class ids of the training set.
        members: for each class, in order of class id, the indices of its samples.
        units_per_batch, samples_per_unit: the size of a batch.
        role_major: whether a batch lists the first samples of all units, then the second ones and so on, instead of
            unit after unit.
        adapts: whether batches depend on the embeddings of earlier batches, which `observe` is given.
        per_sample: options with one value per sample; a configuration names an attribute of the data for each.

    """

    role_major: ClassVar[bool] = False
    adapts: ClassVar[bool] = False
    per_sample: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, labels: Tensor, *, units_per_batch: int, samples_per_unit: int, batches: int | None, seed: int
    ) -> None:
        if not isinstance(labels, Tensor):
            raise not_a_tensor(labels, "labels")
        if labels.ndim != 1 or not len(labels):
            column = "; give labels.squeeze(1)" if labels.ndim == 2 and labels.shape[1] == 1 else ""
            raise EquimetricError(f"labels must be a non-empty vector, got shape {tuple(labels.shape)}{column}")
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
    def shape_options(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """Constructor options for batches of `classes` × `samples` rows, given the further options."""

    @abstractmethod
    def units(self, index: int) -> Tensor:
        """(units, samples of a unit) sample indices of batch `index`."""

    def arrange(self, units: Tensor) -> Tensor:
        """The rows of a batch from its units."""
        return (units.T if self.role_major else units).reshape(-1)

    def batch(self, index: int) -> Tensor:
        """(rows,) sample indices of batch `index`."""
        return self.arrange(self.units(index))

    def set_epoch(self, epoch: int) -> None:
        """Go to the first batch of an epoch."""
        require_at_least(0, epoch=epoch)
        self.epoch, self.position = epoch, 0

    def batch_indices(self) -> Iterator[int]:
        """Indices of the remaining batches of this epoch; after the last one the next epoch begins."""
        while self.position < len(self):
            index, self.position = self.position, self.position + 1
            yield index
        self.set_epoch(self.epoch + 1)

    def stream(self) -> Iterator[Tensor]:
        """Endless batches, epoch after epoch, from the current position."""
        while True:
            for index in self.batch_indices():
                yield self.batch(index)

    def refresh(self, embeddings: Tensor | EmbeddingView, labels: Tensor) -> None:  # noqa: B027
        """Mine the embeddings of the training set; samplers that do not mine ignore them."""

    def set_groups(self, groups: Groups | None) -> None:  # noqa: B027
        """Take the clusters of the training set, used from the next `refresh` on; ignored unless drawing by cluster."""

    def observe(self, embeddings: Tensor) -> None:  # noqa: B027
        """Take the (rows, D) embeddings of the last batch; ignored unless the sampler `adapts`."""

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        return (self.batch(index).tolist() for index in self.batch_indices())

    def state_dict(self) -> dict[str, Any]:
        """Seed, epoch and position."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at a saved position."""
        missing = self.state_dict().keys() - state.keys()
        if missing:
            raise EquimetricError(
                f"this is not the state of {type(self).__name__}: it lacks {', '.join(sorted(missing))}; "
                "resume with the kind of batches that was saved"
            )
        self.seed, self.epoch, self.position = int(state["seed"]), int(state["epoch"]), int(state["position"])

    def generator(self, *purpose: int | str) -> torch.Generator:
        """A generator seeded by the sampler's seed and a purpose."""
        return torch.Generator().manual_seed(derive_seed(self.seed, *purpose))

    def batch_generator(self, index: int) -> torch.Generator:
        """The generator of batch `index` of this epoch."""
        return self.generator("batch", self.epoch, index)

    def epoch_sample(self, n_items: int, k: int, draw: int) -> Tensor:
        """(k,) of `n_items` indices for draw number `draw` of this epoch: no repetition until a shuffle is used up."""
        draws_per_shuffle = n_items // k
        order = torch.randperm(n_items, generator=self.generator("walk", self.epoch, draw // draws_per_shuffle))
        return order[draw % draws_per_shuffle * k :][:k]

    def draw_from_classes(self, classes: list[int], samples: int, generator: torch.Generator) -> Tensor:
        """(classes, samples) sample indices, a class in each row."""
        return torch.stack([draw_samples(self.members[c], samples, generator) for c in classes])

    def require_classes(self, n: int, option: str = "classes per batch") -> None:
        """Raise an error for batches of more classes than there are."""
        if n > len(self.members):
            raise EquimetricError(
                f"a batch of {n} classes cannot be drawn from {len(self.members)}; "
                f"set the {option} to {len(self.members)} or fewer"
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
    def shape_options(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """Classes and samples unchanged."""
        return {"classes_per_batch": classes, "samples_per_class": samples}
