"""Batches of one class and the classes next to it."""

import torch
from torch import Tensor

from equimetric.batches.base import ClassBatches
from equimetric.batches.mined import MinedBatches, class_means, nearest_others
from equimetric.errors import EquimetricError
from equimetric.geometry import unit

__all__ = ["NeighbourClassBatches"]


class NeighbourClassBatches(ClassBatches, MinedBatches):
    """C×M batches of a random class and the C − 1 classes whose centres are nearest to it (Rippel et al. 2016).

    Centres are means of the normalised embeddings. The first class is drawn uniformly, or in proportion to what
    `weigh_classes` was given, say its recent loss. Rows are grouped by class, the first class first.
    """

    def mine(self, embeddings: Tensor) -> dict[str, Tensor]:
        """The nearest classes of each, and the weights of the classes as they were."""
        centres = class_means(unit(embeddings), self.members)
        nearest = nearest_others(centres, centres.square().sum(1), self.units_per_batch - 1)
        weights = self.mined.get("class_weights", torch.ones(len(self.members)))
        return {"nearest": nearest, "class_weights": weights}

    def weigh_classes(self, weights: Tensor) -> None:
        """Draw first classes in proportion to these (classes,) weights, in order of class id, from now on."""
        shape_is_right = weights.shape == (len(self.members),)
        if not shape_is_right or not torch.isfinite(weights).all() or (weights < 0).any() or not (weights > 0).any():
            raise EquimetricError(
                f"weights of classes must be {len(self.members)} finite numbers, not negative and not all zero"
            )
        self.found("nearest")
        self.mined["class_weights"] = weights.detach().to("cpu", torch.float32, copy=True)

    def units(self, number: int) -> Tensor:
        """(C, M) indices, a class in each row."""
        generator = self.batch_generator(number)
        first = int(torch.multinomial(self.found("class_weights"), 1, generator=generator))
        classes = [first, *self.found("nearest")[first].tolist()]
        return self.samples_of(classes, self.samples_per_unit, generator)
