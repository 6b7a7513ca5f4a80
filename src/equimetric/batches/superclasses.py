"""Batches of a few superclasses with several classes of each, for hard negatives of the same kind."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from equimetric.batches.base import Batches, require_at_least
from equimetric.batches.registry import batches
from equimetric.errors import EquimetricError

__all__ = ["SuperclassBatches"]


@batches("superclasses", known_as=("HierarchicalSampler",))
class SuperclassBatches(Batches):
    """C×M batches of `superclasses_per_batch` superclasses with as many classes of each (Cakir et al. 2019, FastAP).

    `superclass` names the superclass of every sample, (N,) integers or strings; samples of one class have one. In a
    configuration it is an attribute of the data, such as "alphabet". Superclasses are drawn uniformly among those with
    enough classes, their classes without replacement. Rows are grouped by superclass, then by class.
    """

    per_sample = ("superclass",)

    def __init__(
        self,
        labels: Tensor,
        *,
        superclass: Tensor | Sequence[int] | Sequence[str],
        superclasses_per_batch: int = 2,
        classes_per_superclass: int,
        samples_per_class: int,
        batches: int | None = None,
        seed: int = 0,
    ) -> None:
        require_at_least(
            1,
            superclasses_per_batch=superclasses_per_batch,
            classes_per_superclass=classes_per_superclass,
            samples_per_class=samples_per_class,
        )
        super().__init__(
            labels,
            units_per_batch=superclasses_per_batch * classes_per_superclass,
            samples_per_unit=samples_per_class,
            batches=batches,
            seed=seed,
        )
        self.superclass = superclass
        self.superclasses_per_batch = superclasses_per_batch
        self.classes_per_superclass = classes_per_superclass
        grouped = group_classes(self.members, superclass, len(self.labels))
        self.superclasses = [classes for classes in grouped if len(classes) >= classes_per_superclass]
        if len(self.superclasses) < superclasses_per_batch:
            sizes = sorted(map(len, grouped), reverse=True)
            raise too_few_superclasses_error(sizes, superclasses_per_batch, classes_per_superclass)

    @classmethod
    def shape_options(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """The classes of a batch in equal parts for its superclasses."""
        n = options.get("superclasses_per_batch", 2)
        if isinstance(n, bool) or not isinstance(n, int) or n < 1 or classes % n:
            raise EquimetricError(
                f"the {classes} classes of a batch belong to superclasses in equal parts, got {n!r}; "
                f"set superclasses_per_batch in batch.options to a divisor of {classes}"
            )
        return {"classes_per_superclass": classes // n, "samples_per_class": samples}

    def units(self, index: int) -> Tensor:
        """(classes, M) indices, a class in each row."""
        generator = self.batch_generator(index)
        superclasses = torch.randperm(len(self.superclasses), generator=generator)[: self.superclasses_per_batch]
        classes: list[int] = []
        for superclass in superclasses.tolist():
            classes_within = self.superclasses[superclass]
            order = torch.randperm(len(classes_within), generator=generator)[: self.classes_per_superclass]
            classes += [classes_within[i] for i in order.tolist()]
        return self.draw_from_classes(classes, self.samples_per_unit, generator)


def too_few_superclasses_error(sizes: list[int], superclasses: int, classes: int) -> EquimetricError:
    """The error for batches that superclasses of these falling numbers of classes cannot fill."""
    if len(sizes) < superclasses:
        remedy = f"set superclasses_per_batch to {len(sizes)} or fewer"
    else:
        remedy = f"set the classes of each superclass to {sizes[superclasses - 1]} or fewer"
    usable = sum(size >= classes for size in sizes)
    return EquimetricError(
        f"{superclasses} superclasses with {classes} classes each cannot be drawn from {len(sizes)}, of which {usable} "
        f"have as many classes; {remedy}"
    )


def group_classes(
    members: Sequence[Tensor], superclass: Tensor | Sequence[int] | Sequence[str], samples: int
) -> list[list[int]]:
    """Classes of each superclass, superclasses in sorted order."""
    if isinstance(superclass, str):
        raise EquimetricError(f"superclass is the superclass of every sample, not the name {superclass!r}")
    values = list(superclass.tolist() if isinstance(superclass, Tensor) else superclass)
    if len(values) != samples:
        raise EquimetricError(f"there are {samples} samples but {len(values)} superclasses; give one for each sample")
    groups: dict[Any, list[int]] = {}
    for class_index, rows in enumerate(members):
        names = {values[sample] for sample in rows.tolist()}
        if len(names) > 1:
            raise EquimetricError(
                f"samples of one class have the superclasses {sorted(map(str, names))}; every class belongs to one"
            )
        groups.setdefault(names.pop(), []).append(class_index)
    return [groups[name] for name in sorted(groups)]
