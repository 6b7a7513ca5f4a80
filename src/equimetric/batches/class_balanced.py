"""C×M batches: C classes, M samples of each."""

import numpy as np
import torch
from torch import Tensor

from equimetric.batches.base import ClassBatches
from equimetric.batches.permutations import draw_raw, first_of_permutations
from equimetric.batches.registry import batches
from equimetric.seeding import derive_seed

__all__ = ["ClassBalancedBatches"]

MAX_AHEAD, MIN_AHEAD, ENTRIES_AHEAD = 64, 8, 2**20
"""Batches that are drawn together, and entries of the permutations that they are drawn by."""


@batches(
    "class_balanced",
    known_as=("MPerClassSampler", "PKSampler", "BalancedBatchSampler"),
)
class ClassBalancedBatches(ClassBatches):
    """Batches of `classes_per_batch` distinct classes with `samples_per_class` samples of each.

    Classes are drawn uniformly without replacement; samples without replacement inside the class if it has enough,
    otherwise each at least once and the rest with replacement. With `replacement` samples are always drawn with
    replacement (Zhai, Wu 2019: 3 classes × 25). Rows are grouped by class.
    """

    def __init__(
        self,
        labels: Tensor,
        *,
        classes_per_batch: int,
        samples_per_class: int,
        batches: int | None = None,
        replacement: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(
            labels,
            classes_per_batch=classes_per_batch,
            samples_per_class=samples_per_class,
            batches=batches,
            seed=seed,
        )
        self.replacement = replacement
        self.sizes = np.array([len(own) for own in self.members])
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.sorted = torch.cat(self.members).numpy()
        self.ahead = self.batches_at_once()
        self.drawn: tuple[tuple[int, int, int], Tensor] | None = None

    def batches_at_once(self) -> int:
        """How many batches are drawn together: 1 where classes are too small, or too large for it to pay."""
        if self.replacement or self.sizes.min() < self.samples_per_unit:
            return 1
        entries = max(len(self.sizes), self.units_per_batch * int(self.sizes.max()))
        together = min(MAX_AHEAD, ENTRIES_AHEAD // entries)
        return together if together >= MIN_AHEAD else 1

    def units(self, number: int) -> Tensor:
        """(C, M) indices, a class in each row."""
        if self.ahead == 1:
            return self.draw_one(number)
        block = number // self.ahead
        key = (self.seed, self.epoch, block)
        if self.drawn is None or self.drawn[0] != key:
            self.drawn = (key, self.draw_block(range(block * self.ahead, (block + 1) * self.ahead)))
        return self.drawn[1][number % self.ahead]

    def draw_block(self, numbers: range) -> Tensor:
        """(batches, C, M) what `draw_one` gives for each of the numbers."""
        classes, per_batch, samples = len(self.sizes), self.units_per_batch, self.samples_per_unit
        most = classes - 1 + int(np.sort(self.sizes)[-per_batch:].sum())
        raw = draw_raw([derive_seed(self.seed, "batch", self.epoch, number) for number in numbers], most)
        chosen = first_of_permutations(raw, np.full(len(numbers), classes), per_batch)
        # A permutation of n takes n − 1 numbers, and the next one goes on where it ends.
        sizes = self.sizes[chosen]
        first = classes - 1 + np.cumsum(sizes - 1, axis=1) - (sizes - 1)
        columns = (first[:, :, None] + np.arange(samples)).reshape(len(numbers), -1)
        own = np.take_along_axis(raw, columns, axis=1).reshape(-1, samples)
        indices = first_of_permutations(own, sizes.reshape(-1), samples).reshape(*chosen.shape, samples)
        return torch.from_numpy(self.sorted[self.starts[chosen][:, :, None] + indices])

    def draw_one(self, number: int) -> Tensor:
        """(C, M) indices of one batch."""
        generator = self.batch_generator(number)
        classes = torch.randperm(len(self.members), generator=generator)[: self.units_per_batch].tolist()
        if not self.replacement:
            return self.draw_from_classes(classes, self.samples_per_unit, generator)
        chosen = [self.members[c] for c in classes]
        indices = [torch.randint(len(own), (self.samples_per_unit,), generator=generator) for own in chosen]
        return torch.stack([own[index] for own, index in zip(chosen, indices, strict=True)])
