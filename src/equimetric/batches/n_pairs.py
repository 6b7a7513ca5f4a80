"""N-pair batches: one anchor and one positive of each of N classes."""

from typing import ClassVar

import torch
from torch import Tensor

from equimetric.batches.base import Batches, draw_samples, require_at_least
from equimetric.errors import EquimetricError

__all__ = ["NPairBatches", "draw_pair", "require_probability"]


def require_probability(same_image: float) -> None:
    """Refuse what is no probability."""
    if not 0 <= same_image <= 1:
        raise EquimetricError(f"same_image is a probability between 0 and 1, got {same_image}")


def draw_pair(members: Tensor, same_image: float, generator: torch.Generator) -> Tensor:
    """(2,) two members, or with probability `same_image` one of them twice; a class of one sample has no choice."""
    pair = draw_samples(members, 2, generator)
    alike = torch.rand((), generator=generator) < same_image
    return pair[:1].expand(2) if alike else pair


class NPairBatches(Batches):
    """Batches of N classes with two samples each, in rows a_1 … a_N, p_1 … p_N.

    With probability `same_image` a class's anchor and positive are one image, for two augmentations of it.
    """

    by_role: ClassVar[bool] = True

    def __init__(
        self,
        labels: Tensor,
        *,
        classes_per_batch: int,
        batches: int | None = None,
        same_image: float = 0.1,
        seed: int = 0,
    ) -> None:
        require_at_least(1, classes_per_batch=classes_per_batch)
        require_probability(same_image)
        super().__init__(labels, units_per_batch=classes_per_batch, samples_per_unit=2, batches=batches, seed=seed)
        self.require_classes(classes_per_batch)
        self.same_image = same_image

    def units(self, number: int) -> Tensor:
        """(N, 2) anchor and positive of each class."""
        generator = self.batch_generator(number)
        classes = torch.randperm(len(self.members), generator=generator)[: self.units_per_batch].tolist()
        return torch.stack([draw_pair(self.members[c], self.same_image, generator) for c in classes])
