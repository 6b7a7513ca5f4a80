"""N-pair batches: one anchor and one positive of each of N classes."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from equimetric.batches.base import Batches, draw_samples, require_at_least, require_samples
from equimetric.batches.registry import batches
from equimetric.option_values import UnitFraction, check_options

__all__ = ["NPairBatches"]


@batches("n_pairs")
class NPairBatches(Batches):
    """Batches of N classes with two samples each, in rows a_1 … a_N, p_1 … p_N.

    With probability `same_image` a class's anchor and positive are one image, for two augmentations of it.
    """

    role_major: ClassVar[bool] = True

    def __init__(
        self,
        labels: Tensor,
        *,
        classes_per_batch: int,
        batches: int | None = None,
        same_image: UnitFraction = 0.1,
        seed: int = 0,
    ) -> None:
        require_at_least(1, classes_per_batch=classes_per_batch)
        check_options("n_pairs", NPairBatches, {"same_image": same_image})
        super().__init__(labels, units_per_batch=classes_per_batch, samples_per_unit=2, batches=batches, seed=seed)
        self.require_classes(classes_per_batch)
        self.same_image = same_image

    @classmethod
    def shape_options(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """A pair of each class."""
        require_samples(samples, 2, "a pair")
        return {"classes_per_batch": classes}

    def units(self, index: int) -> Tensor:
        """(N, 2) anchor and positive of each class."""
        return self.random_pairs(self.units_per_batch, self.batch_generator(index))

    def random_pairs(self, classes: int, generator: torch.Generator) -> Tensor:
        """(classes, 2) anchor and positive of random distinct classes."""
        chosen = torch.randperm(len(self.members), generator=generator)[:classes].tolist()
        return torch.stack([self.pair(self.members[c], generator) for c in chosen])

    def pair(self, members: Tensor, generator: torch.Generator) -> Tensor:
        """(2,) two members, or with probability `same_image` (and in a class of one sample) the same one twice."""
        pair = draw_samples(members, 2, generator)
        same = torch.rand((), generator=generator) < self.same_image
        return pair[:1].expand(2) if same else pair
