"""Batches of one class and its nearest classes."""

import torch
from torch import Tensor

from equimetric.batches.base import ClassBatches
from equimetric.batches.mined import MinedBatches, average_members, nearest_neighbours
from equimetric.batches.registry import batches
from equimetric.errors import EquimetricError
from equimetric.geometry import unit

__all__ = ["NeighbourClassBatches"]


@batches("neighbour_classes")
class NeighbourClassBatches(ClassBatches, MinedBatches):
    """C×M batches of a random class and the C − 1 classes whose centres are nearest to it (Rippel et al. 2016).

    Centres are means of the normalised embeddings. The first class is drawn uniformly, or in proportion to the weights
    of `weigh_classes`, such as recent losses. Rows are grouped by class, the first class first.
    """

    def mine(self, embeddings: Tensor) -> dict[str, Tensor]:
        """Nearest classes of each, and the unchanged class weights."""
        centres = average_members(unit(embeddings), self.members)
        nearest = nearest_neighbours(centres, centres.square().sum(1), self.units_per_batch - 1)
        weights = self.mined.get("class_weights", torch.ones(len(self.members)))
        return {"nearest": nearest, "class_weights": weights}

    def weigh_classes(self, weights: Tensor) -> None:
        """From now on draw first classes in proportion to these (classes,) weights, in order of class id."""
        right_shape = weights.shape == (len(self.members),)
        if not right_shape or not torch.isfinite(weights).all() or (weights < 0).any() or not (weights > 0).any():
            raise EquimetricError(
                f"weights of classes must be {len(self.members)} finite numbers, not negative and not all zero"
            )
        self.get_mined("nearest")
        self.mined["class_weights"] = weights.detach().to("cpu", torch.float32, copy=True)

    def units(self, index: int) -> Tensor:
        """(C, M) indices, a class in each row."""
        generator = self.batch_generator(index)
        first = int(torch.multinomial(self.get_mined("class_weights"), 1, generator=generator))
        classes = [first, *self.get_mined("nearest")[first].tolist()]
        return self.draw_from_classes(classes, self.samples_per_unit, generator)
