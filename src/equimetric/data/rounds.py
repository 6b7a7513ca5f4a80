"""Training classes that arrive in rounds, to measure what a model forgets as it learns more."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from equimetric.data.splits import Split
from equimetric.errors import EquimetricError
from equimetric.seeding import derive_seed

__all__ = ["Keep", "divide_rounds", "train_in_round"]

Keep: TypeAlias = Literal["all", "latest"]
"""Classes that a round trains on: those of all rounds so far, or of this one alone."""

MIN_CLASSES, MIN_IMAGES = 2, 2


def divide_rounds(
    labels: Tensor, rows: Tensor, *, of: int = 4, test_share: float = 0.25
) -> list[tuple[Tensor, Tensor]]:
    """For every round the ascending rows to train on, and those of the same classes that no round trains on.

    The m classes of `rows` are divided in the order of their labels: round r = 1 … R has the classes from number
    ⌊(r − 1)·m/R⌋ to before ⌊r·m/R⌋. Of n images of a class max(2, ⌊n·test_share⌋), drawn by its label, measure
    forgetting and are never trained on; none of a class that would keep fewer than two to train on, or where
    `test_share` is 0.   Shapes: labels (N,) of all images, rows (M,) that may be trained on.
    """
    if of < 2:
        raise EquimetricError(f"rounds.of is {of}; classes arrive in two rounds at least")
    if not 0 <= test_share < 1:
        raise EquimetricError(f"rounds.test_share is {test_share}; give the share of images to test on, 0 to below 1")
    classes, position = torch.unique(labels[rows], return_inverse=True)
    if len(classes) < MIN_CLASSES * of:
        raise EquimetricError(
            f"{len(classes)} training classes cannot arrive in {of} rounds of at least {MIN_CLASSES}; "
            "choose fewer rounds"
        )
    is_test = _draw_test_rows(classes, position, test_share)
    bounds = [r * len(classes) // of for r in range(of + 1)]
    rounds = []
    for first, stop in pairwise(bounds):
        in_round = (position >= first) & (position < stop)
        rounds.append((rows[in_round & ~is_test], rows[in_round & is_test]))
    return rounds


def train_in_round(
    split: Split, labels: Tensor, *, number: int, of: int = 4, keep: Keep = "all", test_share: float = 0.25
) -> Split:
    """The split of round 1 … R: training rows of the rounds so far, or of this one; `Split.rounds` to test on.

    Validation and test stay as they are. Without images set aside, forgetting is measured on images that train.
    """
    if not 1 <= number <= of:
        raise EquimetricError(f"round {number} does not exist; with rounds.of = {of} choose one of 1 to {of}")
    rounds = divide_rounds(labels, split.train, of=of, test_share=test_share)
    arrived = rounds[:number] if keep == "all" else rounds[number - 1 : number]
    rows = torch.cat([train for train, _ in arrived]).sort().values
    return replace(split, train=rows, rounds=tuple(test if test_share else train for train, test in rounds))


def _draw_test_rows(classes: Tensor, position: Tensor, test_share: float) -> Tensor:
    """(M,) mask of the rows set aside, given the position of each row's class among the sorted ones."""
    is_test = torch.zeros(len(position), dtype=torch.bool)
    for class_index, label in enumerate(classes.tolist()):
        members = (position == class_index).nonzero().flatten()
        count = max(MIN_IMAGES, math.floor(len(members) * test_share)) if test_share else 0
        if len(members) - count >= MIN_IMAGES:
            generator = torch.Generator().manual_seed(derive_seed(label, "rounds"))
            is_test[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    return is_test
