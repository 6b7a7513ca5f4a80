"""Divide classes into parts that train, select, calibrate and test; few classes merge parts, with a note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from equimetric.calibration.new_classes import MIN_CLASSES
from equimetric.calibration.targets import FalseAccepts
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import PartsConfig
from equimetric.seeding import derive_seed

__all__ = ["ClassParts", "choose_far", "divide_classes"]

MANY, FOUR_PARTS, THREE_PARTS = 40, 20, 10
"""Minimum numbers of classes for four parts by `SHARES`, for four smaller ones, and for three."""

SHARES = {"test": 0.16, "calibration": 0.25, "validation": 0.12}
"""Shares of the other three parts besides training. Calibration has most: from 15 to 20 classes the bound of the FAR
fell from 3.2 to 2.4 times the target rate, in its worst tenth from 5.1 to 3.3 times (raw features of photographs).
"""

MAX_GROUP_SHARE = 0.1
"""A group of classes that share images trains where it is larger than this share of all classes."""

RATES = (0.01, 0.02, 0.05, 0.1)
"""False accept rates to calibrate for: the smallest with enough pairs is chosen."""

FALSE_ACCEPTS = 10
"""Expected number of false accepts of a fold that calibration requires."""


@dataclass(frozen=True)
class ClassParts:
    """The classes by part.

    Attributes:
        groups: for training and validation, in the order of folds; the classes of a group stay together.
        num_validation_classes: how many classes validate.
        lists: the classes of the other parts.
        merge_notes: sentences on merged parts and what cannot be promised for them.
        training: classes that train in every fold.
    """

    groups: tuple[tuple[str, ...], ...]
    num_validation_classes: int
    lists: Mapping[str, tuple[str, ...]]
    merge_notes: tuple[str, ...] = ()
    training: tuple[str, ...] = ()

    @property
    def calibration(self) -> str:
        """The part that the threshold is calibrated on."""
        return "calibration" if "calibration" in self.lists else "validation"

    def fold(self, index: int = 0, folds: int = 1) -> PartsConfig:
        """The lists of a fold: other classes validate in each; those of fold 0 are the model's own."""
        start = index * len(self.groups) // folds
        train = list(self.training)
        validation: list[str] = []
        for group in (*self.groups[start:], *self.groups[:start]):
            (validation if len(validation) < self.num_validation_classes else train).extend(group)
        lists = {"train": train, "validation": validation, **self.lists}
        return PartsConfig(**{part: sorted(names) for part, names in lists.items()})


def divide_classes(groups: Sequence[Sequence[str]], seed: int = 0) -> ClassParts:
    """Divide classes, given in groups that must stay together, into four parts, or three where there are few.

    The order is random by the seed. Groups larger than a tenth of the classes train; where too few are left for parts
    of the usual size, the parts have the size that the others alone would have.
    """
    classes = sum(map(len, groups))
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(derive_seed(seed, "class parts")))
    shuffled = [tuple(groups[index]) for index in order.tolist()]
    large = [group for group in shuffled if len(group) > max(1, MAX_GROUP_SHARE * classes)]
    small = [group for group in shuffled if group not in large]
    training, free = tuple(name for group in large for name in group), sum(map(len, small))
    sentence = (
        f"nearly equal images tie {len(training):,} classes together: these train, and the other parts have the sizes "
        f"that {free:,} classes would have"
    )
    for count, notes in ((classes, ()), (free, (sentence,))):
        if count < classes and count < THREE_PARTS:
            break
        sizes, merge_notes = part_sizes(count)
        lists, remaining = take_parts(small, sizes)
        if sum(map(len, remaining)) >= sizes["validation"] + 2:
            return ClassParts(remaining, sizes["validation"], lists, (*merge_notes, *notes), training)
    num_tied = sum(len(group) for group in groups if len(group) > 1)
    raise EquimetricError(
        f"nearly equal images tie {num_tied:,} of {classes:,} classes together, and too few are left to divide; remove "
        "images that are in several classes"
    )


def take_parts(
    groups: Sequence[tuple[str, ...]], sizes: Mapping[str, int]
) -> tuple[dict[str, tuple[str, ...]], tuple[tuple[str, ...], ...]]:
    """The classes of all parts but training and validation, group by group, and the remaining groups for these."""
    waiting = list(groups)
    lists: dict[str, tuple[str, ...]] = {}
    for part, size in sizes.items():
        if part == "validation":
            continue
        names: list[str] = []
        while len(names) < size and waiting:
            names.extend(waiting.pop(0))
        lists[part] = tuple(names)
    return lists, tuple(waiting)


def part_sizes(classes: int) -> tuple[dict[str, int], tuple[str, ...]]:
    """Number of classes of each part besides training, and notes on merged parts."""
    if classes < THREE_PARTS:
        raise EquimetricError(
            f"classes with two or more images: {classes}; fit needs at least {THREE_PARTS}, some to train on and "
            "others to choose, calibrate and test on: add classes, each a folder with its images"
        )
    sizes = {part: round(fraction * classes) for part, fraction in SHARES.items()}
    if classes >= MANY:
        return {**sizes, "calibration": max(MIN_CLASSES, sizes["calibration"])}, ()
    if classes >= FOUR_PARTS:
        enough = classes >= 3 * MIN_CLASSES
        num_calibration = MIN_CLASSES if enough else max(4, round(0.2 * classes))
        unbounded = (
            f"{num_calibration} classes calibrate, and a bound for new classes needs {MIN_CLASSES}: the certificate "
            "states the rates that were measured and promises none"
        )
        sizes = {
            "test": max(4, round(0.2 * classes)),
            "calibration": num_calibration,
            "validation": max(3, classes // 8),
        }
        return sizes, () if enough else (unbounded,)
    shared = (
        "validation and calibration classes are one part: the threshold is calibrated on classes that chose the model, "
        "its rates may be too good, and no bound for new classes is promised"
    )
    return {"test": max(3, classes // 4), "validation": max(4, classes // 4)}, (shared,)


def choose_far(images: Mapping[str, int], classes: Sequence[str], far: float | None) -> tuple[float, str]:
    """The false accept rate to calibrate for on some classes, and a sentence where it is not the usual one.

    Each half of the classes, fold by fold, must have enough negative pairs.
    """
    counts = sorted(images[name] for name in classes)
    # The half with the smallest classes: any other has more pairs.
    half = counts[: len(counts) // 2]
    negatives = (sum(half) ** 2 - sum(count**2 for count in half)) // 2
    if far is not None:
        FalseAccepts(far)  # raises an error for what is no rate
        if far * negatives < FALSE_ACCEPTS:
            raise EquimetricError(
                f"{sum(counts):,} images of {len(counts):,} classes are too few to calibrate a threshold on for FAR "
                f"{far:g}; give a larger --far, none for the smallest there are enough images for, or more images"
            )
        return far, ""
    for rate in RATES:
        if rate * negatives >= FALSE_ACCEPTS:
            note = f"there are too few images for a threshold at FAR {RATES[0]:g}; it is calibrated for {rate:g}"
            return rate, "" if rate == RATES[0] else note
    raise EquimetricError(
        f"{sum(counts):,} images of {len(counts):,} classes are too few to calibrate a threshold on, even for FAR "
        f"{RATES[-1]:g}; add images to each class"
    )
