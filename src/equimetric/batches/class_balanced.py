"""C×M batches: C classes, M samples of each."""

import torch
from torch import Tensor

from equimetric.batches.base import ClassBatches
from equimetric.batches.registry import batches

__all__ = ["ClassBalancedBatches"]


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

    def units(self, number: int) -> Tensor:
        """(C, M) indices, a class in each row."""
        generator = self.batch_generator(number)
        classes = torch.randperm(len(self.members), generator=generator)[: self.units_per_batch].tolist()
        if not self.replacement:
            return self.draw_from_classes(classes, self.samples_per_unit, generator)
        chosen = [self.members[c] for c in classes]
        places = [torch.randint(len(own), (self.samples_per_unit,), generator=generator) for own in chosen]
        return torch.stack([own[place] for own, place in zip(chosen, places, strict=True)])
