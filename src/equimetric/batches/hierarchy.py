"""Anchor neighbourhoods of the hierarchical triplet loss."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equimetric.batches.base import require_at_least
from equimetric.batches.mined import MinedBatches, average_members, nearest_neighbours
from equimetric.batches.registry import batches
from equimetric.errors import EquimetricError
from equimetric.geometry import unit

__all__ = ["HierarchyBatches"]


@batches("hierarchy")
class HierarchyBatches(MinedBatches):
    """C×M batches of a few random classes, each with its nearest classes, for hierarchical triplets (Ge et al. 2018).

    `anchor_classes` random classes, the `neighbourhood` − 1 nearest classes of each, `samples_per_class` samples per
    class. The distance of two classes is the mean distance of their samples: d(p, q) = mean_{i∈p, j∈q} ‖r_i − r_j‖² of
    the normalised embeddings. A class already in the batch is skipped for the next nearest, so that all are distinct.
    Rows are grouped by class, each anchor class followed by its neighbours.
    """

    def __init__(
        self,
        labels: Tensor,
        *,
        anchor_classes: int,
        neighbourhood: int,
        samples_per_class: int,
        batches: int | None = None,
        seed: int = 0,
    ) -> None:
        require_at_least(
            1, anchor_classes=anchor_classes, neighbourhood=neighbourhood, samples_per_class=samples_per_class
        )
        super().__init__(
            labels,
            units_per_batch=anchor_classes * neighbourhood,
            samples_per_unit=samples_per_class,
            batches=batches,
            seed=seed,
        )
        self.require_classes(self.units_per_batch, "product of anchor_classes and neighbourhood")
        self.anchor_classes = anchor_classes
        self.neighbourhood = neighbourhood

    @classmethod
    def shape_options(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """As many anchor classes as fit with their neighbours."""
        neighbourhood = options.get("neighbourhood")
        if not neighbourhood or classes % neighbourhood:
            raise EquimetricError(
                f"the {classes} classes of a batch are neighbourhoods of equal size, got {neighbourhood}; "
                f"set neighbourhood in batch.options to a divisor of {classes}"
            )
        return {"anchor_classes": classes // neighbourhood, "samples_per_class": samples}

    def mine(self, embeddings: Tensor) -> dict[str, Tensor]:
        """Nearest classes of each: as many as a batch has besides, since some may already be in it."""
        embeddings = unit(embeddings)
        mean_squared_norms = average_members(embeddings.square().sum(1, keepdim=True), self.members)[:, 0]
        means = average_members(embeddings, self.members)
        return {"nearest": nearest_neighbours(means, mean_squared_norms, self.units_per_batch - 1)}

    def units(self, index: int) -> Tensor:
        """(classes, M) indices, a class in each row."""
        generator = self.batch_generator(index)
        anchors = torch.randperm(len(self.members), generator=generator)[: self.anchor_classes].tolist()
        nearest = self.get_mined("nearest")
        taken = set(anchors)
        classes: list[int] = []
        for anchor in anchors:
            free = [c for c in nearest[anchor].tolist() if c not in taken][: self.neighbourhood - 1]
            taken.update(free)
            classes += [anchor, *free]
        return self.draw_from_classes(classes, self.samples_per_unit, generator)
