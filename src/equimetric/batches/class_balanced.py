"""C×M batches: C classes, M samples of each."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.seeding import derive_seed

__all__ = ["ClassBalancedBatches"]


class ClassBalancedBatches:
    """Batches of `classes_per_batch` distinct classes with `samples_per_class` samples of each.

    Classes are drawn uniformly without replacement; samples without replacement inside the class if it has enough,
    otherwise every one at least once and the rest with replacement. Batch t depends only on the seed, the epoch and
    t, so a run resumes at any batch exactly. Usable as the `batch_sampler` of a `DataLoader`.
    """

    def __init__(
        self, labels: Tensor, *, classes_per_batch: int, samples_per_class: int, batches: int, seed: int = 0
    ) -> None:
        if labels.ndim != 1 or not len(labels):
            raise EquimetricError(f"labels must be a non-empty vector, got shape {tuple(labels.shape)}")
        if classes_per_batch < 1 or samples_per_class < 1 or batches < 1:
            raise EquimetricError(
                "classes_per_batch, samples_per_class and batches must be at least 1, got "
                f"{classes_per_batch}, {samples_per_class} and {batches}"
            )
        sizes = torch.unique(labels, return_counts=True)[1]
        self.members = list(torch.split(labels.argsort(stable=True), sizes.tolist()))
        if classes_per_batch > len(self.members):
            raise EquimetricError(
                f"a batch of {classes_per_batch} classes cannot be drawn from {len(self.members)}; "
                f"set the classes per batch to {len(self.members)} or fewer"
            )
        self.classes_per_batch = classes_per_batch
        self.samples_per_class = samples_per_class
        self.batches = batches
        self.seed = seed
        self.epoch = 0
        self.position = 0

    def batch(self, number: int) -> Tensor:
        """(C·M,) indices of batch `number`, grouped by class."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "batch", self.epoch, number))
        classes = torch.randperm(len(self.members), generator=generator)[: self.classes_per_batch]
        return torch.cat([self._draw(self.members[c], generator) for c in classes.tolist()])

    def _draw(self, members: Tensor, generator: torch.Generator) -> Tensor:
        once = members[torch.randperm(len(members), generator=generator)[: self.samples_per_class]]
        missing = self.samples_per_class - len(once)
        again = members[torch.randint(len(members), (missing,), generator=generator)]
        return torch.cat([once, again])

    def set_epoch(self, epoch: int) -> None:
        """Go to the first batch of an epoch."""
        self.epoch, self.position = epoch, 0

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        while self.position < self.batches:
            number, self.position = self.position, self.position + 1
            yield self.batch(number).tolist()
        self.set_epoch(self.epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler stands."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a saved sampler stood."""
        self.seed, self.epoch, self.position = int(state["seed"]), int(state["epoch"]), int(state["position"])
