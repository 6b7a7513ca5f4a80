"""C×M batches that use every sample at most once per epoch."""

import warnings

import torch
from torch import Tensor

from equimetric.batches.base import ClassBatches
from equimetric.batches.registry import batches
from equimetric.errors import EquimetricError

__all__ = ["ExhaustiveBatches"]


@batches("exhaustive")
class ExhaustiveBatches(ClassBatches):
    """C×M batches that use no sample twice in an epoch, as many as the classes allow.

    The samples of each class are shuffled and cut into groups of `samples_per_class`; `classes_per_batch` groups of
    distinct classes form a batch, until fewer classes have a group left. Every epoch has new groups. Classes with
    fewer samples than a group are never drawn; a warning counts them.
    """

    def __init__(self, labels: Tensor, *, classes_per_batch: int, samples_per_class: int, seed: int = 0) -> None:
        super().__init__(labels, classes_per_batch=classes_per_batch, samples_per_class=samples_per_class, seed=seed)
        groups = torch.tensor([len(members) // samples_per_class for members in self.members])
        small = int((groups == 0).sum())
        if len(groups) - small < classes_per_batch:
            raise EquimetricError(
                f"only {len(groups) - small} classes have {samples_per_class} samples or more, fewer than the "
                f"{classes_per_batch} of a batch; lower the classes per batch or the samples per class"
            )
        if small:
            warnings.warn(
                f"{small} of {len(groups)} classes have fewer than {samples_per_class} samples and are never drawn",
                stacklevel=2,
            )
        self.batches = max_batches(groups, classes_per_batch)
        self.current: tuple[tuple[int, int], Tensor] | None = None

    def units(self, index: int) -> Tensor:
        """(C, M) indices, a class in each row."""
        key = (self.seed, self.epoch)
        if self.current is None or self.current[0] != key:
            self.current = (key, self.plan())
        return self.current[1][index]

    def plan(self) -> Tensor:
        """(batches, C, M) indices of a whole epoch.

        With T batches no class has more than T groups. Laid out class after class, slot s goes to batch s mod T, so
        the groups of a class fall into different batches.
        """
        generator = self.generator("exhaustive", self.epoch)
        groups = []
        for c in torch.randperm(len(self.members), generator=generator).tolist():
            shuffled = self.members[c][torch.randperm(len(self.members[c]), generator=generator)]
            n_groups = min(len(shuffled) // self.samples_per_unit, self.batches)
            groups.append(shuffled[: n_groups * self.samples_per_unit].view(n_groups, self.samples_per_unit))
        laid_out = torch.cat(groups)
        slots = self.batches * self.units_per_batch
        chosen = torch.randperm(len(laid_out), generator=generator)[:slots].sort().values
        by_batch = laid_out[chosen].view(self.units_per_batch, self.batches, -1).transpose(0, 1)
        return by_batch[torch.randperm(self.batches, generator=generator)]


def max_batches(groups: Tensor, classes: int) -> int:
    """Number of batches of distinct classes that can be filled: the largest T with Σ_c min(groups_c, T) ≥ classes·T."""
    batches = int(groups.sum()) // classes
    while int(groups.clamp_max(batches).sum()) < classes * batches:
        batches = int(groups.clamp_max(batches).sum()) // classes
    return batches
