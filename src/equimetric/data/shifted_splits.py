"""Splits whose test classes are ever farther from the training classes, to measure generalisation under shift.

Milbich, Roth, Sinha, Schmidt, Ghassemi, Ommer: "Characterizing Generalization under Out-Of-Distribution Shifts in Deep
Metric Learning" (2021). A class is represented by the mean of features that were not trained on the data.
"""

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from equimetric.data.dataset import Dataset
from equimetric.errors import EquimetricError
from equimetric.files import write_atomically

__all__ = [
    "ShiftedSplit",
    "class_means",
    "frechet_distance",
    "read_shifted_splits",
    "shifted_split_of",
    "shifted_splits",
    "write_shifted_splits",
]

RIDGE = 1e-8  # added to the covariances inside the square root, so that it is defined for few classes
FORMAT = "equimetric shifted splits 1"

Exchanges: TypeAlias = deque[tuple[int, int]]
"""Classes that changed sides, a training and a test class each, in order."""


@dataclass(frozen=True)
class ShiftedSplit:
    """Training and test classes by name, their Fréchet distance, and how many of each side were swapped and removed."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    distance: float
    swaps: int
    removals: int


def class_means(features: Tensor, labels: Tensor) -> Tensor:
    """The mean feature of each class.   Shapes: features (N, D), labels (N,) 0 … K−1 → (K, D) float64."""
    classes = int(labels.max()) + 1
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64).index_add_(0, labels, features.double())
    return sums / torch.bincount(labels, minlength=classes).unsqueeze(1)


def frechet_distance(first: Tensor, second: Tensor) -> float:
    """‖μ₁ − μ₂‖² + tr(Σ₁ + Σ₂ − 2 (Σ₁Σ₂)^½) of two sets of vectors, each taken as a normal distribution.

    Covariances divide by n − 1 and have ε = 1e-8 added to their diagonal inside the root. Σ₁Σ₂ has the eigenvalues of
    the symmetric Σ₁^½ Σ₂ Σ₁^½, whose square roots sum to the trace. In directions without any variance both
    covariances are ε·I and the root contributes ε each, so only the other directions are computed.
    Shapes: (n₁, D), (n₂, D), n ≥ 2.
    """
    for vectors in (first, second):
        if vectors.ndim != 2 or len(vectors) < 2:
            shape = tuple(vectors.shape)
            raise EquimetricError(f"a Fréchet distance needs at least two vectors on each side, not shape {shape}")
    means = [vectors.double().mean(0) for vectors in (first, second)]
    centred = [vectors.double() - mean for vectors, mean in zip((first, second), means, strict=True)]
    directions = torch.linalg.qr(torch.cat(centred).T).Q
    projected = [vectors @ directions for vectors in centred]
    cov1, cov2 = (vectors.T @ vectors / (len(vectors) - 1) for vectors in projected)
    ridge = RIDGE * torch.eye(len(cov1), dtype=torch.float64)
    values, axes = torch.linalg.eigh(cov1 + ridge)
    root = (axes * values.clamp(min=0).sqrt()) @ axes.T
    trace_of_root = torch.linalg.eigvalsh(root @ (cov2 + ridge) @ root).clamp(min=0).sqrt().sum()
    trace_of_root = trace_of_root + RIDGE * (first.shape[1] - len(cov1))
    return float((means[0] - means[1]).square().sum() + cov1.trace() + cov2.trace() - 2 * trace_of_root)


def shifted_splits(
    means: Tensor,
    class_names: Sequence[str],
    *,
    train: Sequence[int] | None = None,
    swaps: int = 48,
    removals: int = 0,
    step: int = 2,
    easier: bool = False,
    remember: int | None = None,
) -> list[ShiftedSplit]:
    """The initial split and the splits after every `step` swaps or removals, with the Fréchet distance of both sides.

    means        (K, D), one row per class (`class_means`); `train` are the initial training classes, by default the
                 first half, all others are test classes
    swaps        each exchanges one class of either side, the one nearest to the other side: ranked by distance to the
                 other side's mean minus distance to their own, ascending (descending if `easier`); the ranking and the
                 means are computed anew after every `step` of them
    remember     classes exchanged in the last `remember` swaps stay in place: by default 5, or 30 if `easier`
    removals     afterwards each drops the nearest class of either side, `step` at a time, whenever `step` more swaps
                 would not increase the distance
    """
    classes = len(means)
    if means.ndim != 2 or len(class_names) != classes:
        raise EquimetricError(f"means of shape {tuple(means.shape)} need as many class names, not {len(class_names)}")
    if step < 1 or swaps < 0 or removals < 0:
        raise EquimetricError(f"step must be at least 1, swaps and removals 0 or more, not {step}, {swaps}, {removals}")
    sides = [sorted(train if train is not None else range(classes - classes // 2)), []]
    sides[1] = sorted(set(range(classes)) - set(sides[0]))
    for label in set(sides[0]) - set(range(classes)):
        raise EquimetricError(f"training class {label} does not exist; there are 0 to {classes - 1}")
    if min(map(len, sides)) - removals < 2:
        raise EquimetricError(
            f"{removals} removals leave fewer than two of {len(sides[0])} training and {len(sides[1])} test classes; "
            "remove fewer, or begin with more"
        )
    means = means.double()
    recent: Exchanges = deque(maxlen=(30 if easier else 5) if remember is None else remember)
    splits = [_record(means, sides, class_names, 0, 0)]
    while splits[-1].swaps < swaps:
        swapped, recent, moved = _swap(means, sides, recent, min(step, swaps - splits[-1].swaps), easier)
        if not moved:
            break
        sides = swapped
        splits.append(_record(means, sides, class_names, splits[-1].swaps + moved, 0))
    while splits[-1].removals < removals:
        last = splits[-1]
        swapped, swap_recent, moved = _swap(means, sides, recent, step, easier=False)
        after_swap = _record(means, swapped, class_names, last.swaps + moved, last.removals)
        if after_swap.distance > last.distance:
            sides, recent = swapped, swap_recent
            splits.append(after_swap)
            continue
        count = min(step, removals - last.removals)
        leaving = [set(_nearest_to_other(means, sides, side, easier=False)[:count]) for side in (0, 1)]
        sides = [sorted(set(sides[side]) - leaving[side]) for side in (0, 1)]
        splits.append(_record(means, sides, class_names, last.swaps, last.removals + count))
    return splits


def _swap(
    means: Tensor, sides: Sequence[Sequence[int]], recent: Exchanges, count: int, easier: bool
) -> tuple[list[list[int]], Exchanges, int]:
    """Both sides after at most `count` swaps by one ranking, the exchanges to remember then, and the number of swaps.

    Each swap takes the first class of either ranking that was not exchanged recently, the swaps before it included.
    """
    ranked = [_nearest_to_other(means, sides, side, easier) for side in (0, 1)]
    recent = recent.copy()
    moved: tuple[list[int], list[int]] = ([], [])
    for _ in range(count):
        resting = {label for exchange in recent for label in exchange}.union(*moved)
        first = [next((label for label in side if label not in resting), None) for side in ranked]
        if first[0] is None or first[1] is None:
            break
        moved[0].append(first[0])
        moved[1].append(first[1])
        recent.append((first[0], first[1]))
    swapped = [sorted((set(sides[side]) - set(moved[side])) | set(moved[1 - side])) for side in (0, 1)]
    return swapped, recent, len(moved[0])


def _nearest_to_other(means: Tensor, sides: Sequence[Sequence[int]], side: int, easier: bool) -> list[int]:
    """The classes of a side by  ‖m − μ_other‖ − ‖m − μ_own‖, ascending; descending if `easier`."""
    own_means, other_means = means[list(sides[side])], means[list(sides[1 - side])]
    score = (own_means - other_means.mean(0)).norm(dim=1) - (own_means - own_means.mean(0)).norm(dim=1)
    order = score.argsort(descending=easier, stable=True).tolist()
    return [sides[side][index] for index in order]


def _record(
    means: Tensor, sides: Sequence[Sequence[int]], names: Sequence[str], swaps: int, removals: int
) -> ShiftedSplit:
    train, test = (tuple(names[label] for label in side) for side in sides)
    return ShiftedSplit(train, test, frechet_distance(means[list(sides[0])], means[list(sides[1])]), swaps, removals)


def write_shifted_splits(file: str | Path, splits: Sequence[ShiftedSplit], dataset: Dataset) -> None:
    """Write class lists to a JSON file, with the data set they belong to."""
    content = {
        "format": FORMAT,
        "dataset": dataset.name,
        "classes": dataset.classes,
        "splits": [asdict(s) for s in splits],
    }
    write_atomically(Path(file).expanduser(), json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def shifted_split_of(file: str | Path, number: int, dataset: Dataset) -> ShiftedSplit:
    """The class lists with this number in a file; −1 is the last."""
    splits = read_shifted_splits(file, dataset)
    if not -len(splits) <= number < len(splits):
        raise EquimetricError(
            f"{str(file)!r} has {len(splits)} splits, numbered 0 to {len(splits) - 1} (or from -1 down, from the "
            f"last one on); there is no number {number}"
        )
    return splits[number]


def read_shifted_splits(file: str | Path, dataset: Dataset) -> list[ShiftedSplit]:
    """Read class lists and check them against the data set; `split_by_classes` turns them into splits."""
    file = Path(file).expanduser()
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise KeyError(f"format {content['format']!r}")
        splits = [
            ShiftedSplit(tuple(s["train"]), tuple(s["test"]), s["distance"], s["swaps"], s["removals"])
            for s in content["splits"]
        ]
    except FileNotFoundError:
        raise EquimetricError(f"there is no file {str(file)!r}; write it with write_shifted_splits") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EquimetricError(f"{str(file)!r} holds no shifted splits ({error}); write it again") from None
    missing = {name for split in splits for name in (*split.train, *split.test)} - set(dataset.class_names)
    if missing:
        raise EquimetricError(
            f"{str(file)!r} was written for data set {content['dataset']!r} with {content['classes']} classes; "
            f"data set {dataset.name!r} has no class {min(missing)!r}"
        )
    return splits
