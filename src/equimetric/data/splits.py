"""Splits in which no class is shared: a model is judged on classes it has never seen."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from equimetric.data.dataset import Dataset
from equimetric.errors import EquimetricError

__all__ = ["Split", "class_disjoint_split", "require_pairs", "require_two_images"]

FEWEST_CLASSES = 7  # each part needs two classes, for nothing can be confused within one; half are for the test
NAMES_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Split:
    """Ascending sample indices (int64) of three parts that share no class."""

    train: Tensor
    validation: Tensor
    test: Tensor


def class_disjoint_split(labels: Tensor, *, fold: int = 0, folds: int = 4, validation_fraction: float = 0.125) -> Split:
    """Split by classes, in the order of their labels, as in Musgrave et al., "A Metric Learning Reality Check" (2020).

    Of n classes the last ⌊n/2⌋ are the test classes, the same in every fold. The first m = n − ⌊n/2⌋ form a ring: the
    m − n_val classes from number ⌊fold·m/folds⌋ on are for training, the n_val = max(2, ⌊n·validation_fraction⌋) that
    follow them for validation.

    Shapes: labels (N,) integer; any values, a class is a value that occurs.
    """
    values, position = torch.unique(labels, return_inverse=True)
    classes = len(values)
    if classes < FEWEST_CLASSES:
        raise EquimetricError(f"a split by class needs at least {FEWEST_CLASSES} classes; these labels have {classes}")
    if folds < 1:
        raise EquimetricError(f"folds must be at least 1, not {folds}")
    if not 0 <= fold < folds:
        raise EquimetricError(f"fold {fold} does not exist; with folds={folds} choose one of 0 to {folds - 1}")
    test_classes = classes // 2
    ring = classes - test_classes
    validation_classes = max(2, math.floor(classes * validation_fraction))
    if validation_fraction < 0 or validation_classes > ring - 2:
        raise EquimetricError(
            f"validation_fraction {validation_fraction} leaves fewer than two classes to train on; choose a smaller one"
        )
    start = fold * ring // folds
    # how far a class lies behind the first training class, going round the ring
    turn = (position - start) % ring
    cross_validation = position < ring
    return Split(
        train=_indices(cross_validation & (turn < ring - validation_classes)),
        validation=_indices(cross_validation & (turn >= ring - validation_classes)),
        test=_indices(~cross_validation),
    )


def _indices(chosen: Tensor) -> Tensor:
    return chosen.nonzero().squeeze(1)


def require_pairs(dataset: Dataset) -> None:
    """Refuse a data set with a class of one image: nothing of its class could be found with it."""
    counts = torch.bincount(dataset.labels, minlength=dataset.classes).tolist()
    require_two_images(dict(zip(dataset.class_names, counts, strict=True)))


def require_two_images(images_per_class: Mapping[str, int]) -> None:
    """Refuse classes with fewer than two images, naming the first few of them."""
    lonely = [name for name, count in images_per_class.items() if count < 2]
    if not lonely:
        return
    if len(lonely) == 1:
        found = "one image" if images_per_class[lonely[0]] else "no image"
        raise EquimetricError(
            f"class {lonely[0]!r} has {found}; every class needs at least two, remove it or add images"
        )
    names = ", ".join(repr(name) for name in lonely[:NAMES_SHOWN]) + (", …" if len(lonely) > NAMES_SHOWN else "")
    raise EquimetricError(
        f"{len(lonely)} classes have fewer than two images ({names}); every class needs at least two, "
        "remove them or add images"
    )
