"""C×M batches: C classes, M samples of each."""

import numpy as np
import torch
from torch import Tensor

from equimetric.batches.base import ClassBatches
from equimetric.batches.permutations import draw_raw, first_of_permutations
from equimetric.batches.registry import batches
from equimetric.seeding import derive_seed

__all__ = ["ClassBalancedBatches"]

MAX_BLOCK_SIZE, MIN_BLOCK_SIZE, MAX_BLOCK_ENTRIES = 64, 8, 2**20
"""Batches drawn together in a block, and entries of the permutations that they are drawn by."""


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
        self.sizes = np.array([len(members) for members in self.members])
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.sorted = torch.cat(self.members).numpy()
        self.block_size = self.choose_block_size()
        self.block: tuple[tuple[int, int, int], Tensor] | None = None

    def choose_block_size(self) -> int:
        """Number of batches drawn together: 1 where classes are too small, or too large for it to pay."""
        if self.replacement or self.sizes.min() < self.samples_per_unit:
            return 1
        entries = max(len(self.sizes), self.units_per_batch * int(self.sizes.max()))
        size = min(MAX_BLOCK_SIZE, MAX_BLOCK_ENTRIES // entries)
        return size if size >= MIN_BLOCK_SIZE else 1

    def units(self, index: int) -> Tensor:
        """(C, M) indices, a class in each row."""
        if self.block_size == 1:
            return self.draw_batch(index)
        start = index - index % self.block_size
        key = (self.seed, self.epoch, start)
        if self.block is None or self.block[0] != key:
            self.block = (key, self.draw_block(range(start, start + self.block_size)))
        return self.block[1][index - start]

    def draw_block(self, batch_indices: range) -> Tensor:
        """(batches, C, M) result of `draw_batch` for each of these batches."""
        classes, per_batch, samples = len(self.sizes), self.units_per_batch, self.samples_per_unit
        max_draws = classes - 1 + int(np.sort(self.sizes)[-per_batch:].sum())
        raw = draw_raw([derive_seed(self.seed, "batch", self.epoch, index) for index in batch_indices], max_draws)
        chosen = first_of_permutations(raw, np.full(len(batch_indices), classes), per_batch)
        # A permutation of n takes n − 1 numbers, and the next one begins where it ends.
        sizes = self.sizes[chosen]
        first = classes - 1 + np.cumsum(sizes - 1, axis=1) - (sizes - 1)
        columns = (first[:, :, None] + np.arange(samples)).reshape(len(batch_indices), -1)
        sample_raw = np.take_along_axis(raw, columns, axis=1).reshape(-1, samples)
        indices = first_of_permutations(sample_raw, sizes.reshape(-1), samples).reshape(*chosen.shape, samples)
        return torch.from_numpy(self.sorted[self.starts[chosen][:, :, None] + indices])

    def draw_batch(self, index: int) -> Tensor:
        """(C, M) indices of one batch."""
        generator = self.batch_generator(index)
        classes = torch.randperm(len(self.members), generator=generator)[: self.units_per_batch].tolist()
        if not self.replacement:
            return self.draw_from_classes(classes, self.samples_per_unit, generator)
        chosen = [self.members[c] for c in classes]
        positions = [torch.randint(len(members), (self.samples_per_unit,), generator=generator) for members in chosen]
        return torch.stack([members[at] for members, at in zip(chosen, positions, strict=True)])
