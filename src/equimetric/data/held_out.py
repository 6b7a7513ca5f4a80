"""Splits by superclass: no superclass of test or validation classes is trained on."""

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from equimetric.data.attributes import class_attribute_ids
from equimetric.data.dataset import Dataset
from equimetric.data.splits import Split, require_fold
from equimetric.errors import EquimetricError
from equimetric.seeding import derive_seed

__all__ = ["split_held_out"]

MIN_CLASSES = 2  # classes of a part: with one there is nothing to tell apart


def split_held_out(
    dataset: Dataset,
    attribute: str,
    *,
    fold: int = 0,
    folds: int = 4,
    validation_fraction: float = 0.125,
    seed: int | None = None,
) -> Split:
    """Split by the values of an attribute of the classes, such as "script": each value is in one part alone.

    Values are superclasses, in the order of their first class. The last ones are for the test, as many as have the
    number of classes nearest to half of all n. Of the others, neighbouring ones validate: in fold 0 those with the
    number of classes nearest to max(2, ⌊n·validation_fraction⌋), in every further fold the nearest among those that no
    earlier fold has used. With a `seed` the others are in random order. An official split does not count.
    """
    require_fold(fold, folds)
    values = class_attribute_ids(dataset, attribute, "data.held_out").tolist()
    order = list(dict.fromkeys(values))
    sizes = [values.count(value) for value in order]
    first_test = _cut(sizes, attribute)
    rest = list(range(first_test))
    if seed is not None:
        generator = torch.Generator().manual_seed(derive_seed(seed, "held out"))
        rest = torch.randperm(first_test, generator=generator).tolist()
    target_size = max(MIN_CLASSES, math.floor(len(values) * validation_fraction))
    blocks = _validation_blocks([sizes[index] for index in rest], target_size, fold + 1)
    if len(blocks) <= fold:
        raise EquimetricError(
            f"data.held_out = {attribute!r} leaves {first_test} values beside those of the test, enough for "
            f"{len(blocks)} folds; set folds to {max(1, len(blocks))} or fewer, or choose an attribute of more values"
        )
    validating = {order[rest[index]] for index in blocks[fold]}
    testing = set(order[first_test:])
    parts = ["validation" if value in validating else "test" if value in testing else "train" for value in values]
    train, validation, test = (_rows_of(dataset, parts, part) for part in ("train", "validation", "test"))
    return Split(train, validation, test)


def _cut(sizes: Sequence[int], attribute: str) -> int:
    """The first superclass of the test: those from it on have the number of classes nearest to half of all."""
    total = sum(sizes)
    before = list(accumulate(sizes, initial=0))
    # The others are two superclasses at least, one to train on and one to validate.
    possible = [cut for cut in range(2, len(sizes)) if MIN_CLASSES <= total - before[cut] <= total - 2 * MIN_CLASSES]
    if not possible:
        raise EquimetricError(
            f"data.held_out = {attribute!r} has {len(sizes)} values for {total} classes; training, validation and test "
            f"need a value of {MIN_CLASSES} classes or more each: choose another attribute, or add classes"
        )
    # Of two equally near ones the later, so that no more than half of the classes are for the test.
    return min(possible, key=lambda cut: (abs(2 * before[cut] - total), -cut))


def _validation_blocks(sizes: Sequence[int], target_size: int, folds: int) -> list[range]:
    """Disjoint runs of neighbouring superclasses with sizes nearest to `target_size`, nearest first, at most `folds`.

    Each leaves enough classes to train on.
    """
    total, before = sum(sizes), list(accumulate(sizes, initial=0))
    used: set[int] = set()
    blocks: list[range] = []
    while len(blocks) < folds:
        runs = []
        for first in range(len(sizes)):
            for stop in range(first + 1, len(sizes) + 1):
                size = before[stop] - before[first]
                if stop - 1 in used or size > total - MIN_CLASSES:
                    break
                if size >= MIN_CLASSES:
                    runs.append((abs(size - target_size), first, stop))
                if size >= target_size:
                    break
        if not runs:
            break
        _, first, stop = min(runs)
        blocks.append(range(first, stop))
        used |= set(blocks[-1])
    return blocks


def _rows_of(dataset: Dataset, parts: Sequence[str], part: str) -> Tensor:
    """Ascending rows of the classes of a part."""
    in_part = torch.tensor([class_part == part for class_part in parts])
    return in_part[dataset.labels].nonzero().squeeze(1)
