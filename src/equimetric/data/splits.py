"""Class-disjoint splits: a model is evaluated on classes that it was not trained on."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from equimetric.data.dataset import Dataset
from equimetric.errors import EquimetricError, unknown_name
from equimetric.seeding import derive_seed

__all__ = [
    "Split",
    "class_disjoint_split",
    "require_fold",
    "require_pairs",
    "require_two_images",
    "split_by_classes",
    "split_by_parts",
    "split_dataset",
]

MIN_CLASSES = 7  # half are for the test, and each part needs two classes to tell apart
MAX_NAMES = 5


@dataclass(frozen=True, eq=False)
class Split:
    """Ascending sample indices (int64) of three parts that share no class, or of five.

    `cohort` has the classes by which similarities are normalised, `calibration` those that a threshold is chosen on;
    both are None where they were not set aside. Where queries are searched for in a gallery, `query` and `gallery`
    divide `test`; otherwise they are None, and every test image is a query among all the others. Where training classes
    arrive in rounds, `rounds` has images of the classes of each round, to measure what is forgotten.
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    query: Tensor | None = None
    gallery: Tensor | None = None
    rounds: tuple[Tensor, ...] = ()
    cohort: Tensor | None = None
    calibration: Tensor | None = None

    def parts(self) -> dict[str, Tensor]:
        """The parts by name; cohort and calibration where there are any."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        optional = {"cohort": self.cohort, "calibration": self.calibration}
        return parts | {name: rows for name, rows in optional.items() if rows is not None}

    def with_train_parts(self, *names: str) -> "Split":
        """The split with further parts among the training rows; they are empty then."""
        parts = self.parts()
        train = torch.cat([self.train, *(parts[name] for name in names)]).sort().values
        remaining = {name: rows[:0] if name in names else rows for name, rows in parts.items()}
        query, gallery = (None, None) if "test" in names else (self.query, self.gallery)
        return replace(
            self, train=train, validation=remaining["validation"], test=remaining["test"], query=query, gallery=gallery
        )

    def without_test(self) -> "Split":
        """The split with an empty test part, and none to calibrate on."""
        return Split(self.train, self.validation, self.test[:0], cohort=self.cohort)


def class_disjoint_split(
    labels: Tensor, *, fold: int = 0, folds: int = 4, validation_fraction: float = 0.125, seed: int | None = None
) -> Split:
    """Split by classes, in the order of their labels, as in Musgrave et al., "A Metric Learning Reality Check" (2020).

    Of n classes the last ⌊n/2⌋ are the test classes, the same in every fold. The first m = n − ⌊n/2⌋ form a ring: the
    m − n_val classes from number ⌊fold·m/folds⌋ on are for training, the next n_val = max(2, ⌊n·validation_fraction⌋)
    for validation. With a `seed` the ring is in random order; the test classes stay the same.

    Shapes: labels (N,) integer; any values, a class is a value that occurs.
    """
    values, position = torch.unique(labels, return_inverse=True)
    classes = len(values)
    if classes < MIN_CLASSES:
        raise EquimetricError(f"a split by class needs at least {MIN_CLASSES} classes; these labels have {classes}")
    testing = position >= classes - classes // 2
    held_out = math.floor(classes * validation_fraction)
    return _with_validation(position, testing, fold, folds, validation_fraction, held_out, seed)


def split_dataset(
    dataset: Dataset, *, fold: int = 0, folds: int = 4, validation_fraction: float = 0.125, seed: int | None = None
) -> Split:
    """The official split of a data set that has one, otherwise `class_disjoint_split`.

    An official split without validation classes takes them from its training classes by the same rule: folds of a
    ring, ⌊n·validation_fraction⌋ of all n classes each.
    """
    if "part" not in dataset.sample_attributes:
        return class_disjoint_split(
            dataset.labels, fold=fold, folds=folds, validation_fraction=validation_fraction, seed=seed
        )
    test = dataset.part("test", "query", "gallery")
    training, validation = dataset.part("train"), dataset.part("validation")
    for name, indices in {"train": training, "test": test}.items():
        if not len(indices):
            raise EquimetricError(f"the official split of data set {dataset.name!r} has no {name} images; add some")
    _require_disjoint(dataset, {"train": training, "validation": validation, "test": test})
    if len(validation):
        split = Split(training, validation, test)
    else:
        testing = torch.zeros(len(dataset), dtype=torch.bool)
        testing[test] = True
        held_out = math.floor(dataset.classes * validation_fraction)
        split = _with_validation(dataset.labels, testing, fold, folds, validation_fraction, held_out, seed)
    query, gallery = dataset.part("query"), dataset.part("gallery")
    if bool(len(query)) != bool(len(gallery)):
        raise EquimetricError(f"data set {dataset.name!r} has queries or a gallery only; it needs both or neither")
    return replace(split, query=query, gallery=gallery) if len(query) else split


def split_by_classes(
    dataset: Dataset,
    *,
    train: Iterable[str],
    test: Iterable[str],
    fold: int = 0,
    folds: int = 4,
    validation_fraction: float = 0.25,
    seed: int | None = None,
) -> Split:
    """A split by lists of class names; images of other classes are in no part.

    Of m training classes ⌈m·validation_fraction⌉ are for validation, again in folds of a ring: of Milbich et al.'s 98
    classes 73 train and 25 validate.
    """
    groups = list(_listed_labels(dataset, {"training": train, "the test": test}).values())
    chosen = _indices(torch.isin(dataset.labels, torch.cat(groups)))
    testing = torch.isin(dataset.labels[chosen], groups[1])
    # Rounded first: 100 · 0.07 is a little more than 7.
    held_out = math.ceil(round(len(groups[0]) * validation_fraction, 9))
    split = _with_validation(dataset.labels[chosen], testing, fold, folds, validation_fraction, held_out, seed)
    return Split(chosen[split.train], chosen[split.validation], chosen[split.test])


def split_by_parts(dataset: Dataset, parts: Mapping[str, Sequence[str]]) -> Split:
    """A split by lists of class names: train, validation and test, and where they are set aside cohort and calibration.

    Images of classes that no list names are in no part.
    """
    labels = _listed_labels(dataset, parts)
    for part in ("train", "validation", "test"):
        if len(labels.get(part, ())) < 2:
            raise EquimetricError(f"data.parts.{part} names fewer than two classes; a part needs two to tell apart")
    rows = {part: _indices(torch.isin(dataset.labels, chosen)) for part, chosen in labels.items()}
    return Split(
        rows["train"],
        rows["validation"],
        rows["test"],
        cohort=rows.get("cohort"),
        calibration=rows.get("calibration"),
    )


def _listed_labels(dataset: Dataset, lists: Mapping[str, Iterable[str]]) -> dict[str, Tensor]:
    """Ascending class ids of lists of class names, by what they are for; no class may be in two of them."""
    label_of = {name: label for label, name in enumerate(dataset.class_names)}
    use_of: dict[str, str] = {}
    labels = {}
    for use, names in lists.items():
        for name in (names := list(names)):
            if name not in label_of:
                raise unknown_name(f"class of data set {dataset.name!r}", name, label_of)
            if use_of.setdefault(name, use) != use:
                raise EquimetricError(f"class {name!r} is for {use_of[name]} and for {use}; choose one")
        labels[use] = torch.tensor(sorted({label_of[name] for name in names}), dtype=torch.int64)
    return labels


def _require_disjoint(dataset: Dataset, parts: Mapping[str, Tensor]) -> None:
    part_of_class: dict[int, str] = {}
    for part, indices in parts.items():
        for label in torch.unique(dataset.labels[indices]).tolist():
            earlier = part_of_class.setdefault(label, part)
            if earlier != part:
                raise EquimetricError(
                    f"class {dataset.class_names[label]!r} of data set {dataset.name!r} is in {earlier} and in {part}; "
                    "parts must share no class: change the split, or leave it out of the data and split by class"
                )


def require_fold(fold: int, folds: int) -> None:
    """Raise an error for a fold that does not exist."""
    if folds < 1:
        raise EquimetricError(f"folds must be at least 1, not {folds}")
    if not 0 <= fold < folds:
        raise EquimetricError(f"fold {fold} does not exist; with folds={folds} choose one of 0 to {folds - 1}")


def _with_validation(
    labels: Tensor,
    testing: Tensor,
    fold: int,
    folds: int,
    validation_fraction: float,
    held_out: int,
    seed: int | None,
) -> Split:
    """Divide the non-test images (N,) by class: folds of a ring, max(2, held_out) classes for validation."""
    require_fold(fold, folds)
    values, position = torch.unique(labels[~testing], return_inverse=True)
    ring = len(values)
    held_out = max(2, held_out)
    if validation_fraction < 0 or held_out > ring - 2:
        raise EquimetricError(
            f"validation_fraction {validation_fraction} leaves fewer than two classes to train on: of {ring} classes "
            f"that are not for the test {held_out} would be for validation; choose a smaller one, or add classes"
        )
    if folds > ring:
        raise EquimetricError(
            f"{folds} folds of {ring} classes that are not for the test would repeat each other; "
            f"set folds to {ring} or fewer"
        )
    if seed is not None:
        shuffled = torch.randperm(ring, generator=torch.Generator().manual_seed(derive_seed(seed, "folds")))
        position = shuffled[position]
    # Position of a class after the first training class, going round the ring.
    ring_position = (position - fold * ring // folds) % ring
    non_test = _indices(~testing)
    return Split(
        train=non_test[ring_position < ring - held_out],
        validation=non_test[ring_position >= ring - held_out],
        test=_indices(testing),
    )


def _indices(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(1)


def require_pairs(dataset: Dataset, remedy: str = "") -> None:
    """Raise an error for a class of one image, which has no other image to retrieve."""
    counts = torch.bincount(dataset.labels, minlength=dataset.classes).tolist()
    require_two_images(dict(zip(dataset.class_names, counts, strict=True)), remedy)


def require_two_images(images_per_class: Mapping[str, int], remedy: str = "") -> None:
    """Raise an error that names the first few classes with fewer than two images, and a further remedy."""
    small = [name for name, count in images_per_class.items() if count < 2]
    if not small:
        return
    remedy = remedy and f", {remedy}"
    if len(small) == 1:
        count_text = "one image" if images_per_class[small[0]] else "no image"
        raise EquimetricError(
            f"class {small[0]!r} has {count_text}; every class needs at least two, remove it or add images{remedy}"
        )
    names = ", ".join(repr(name) for name in small[:MAX_NAMES]) + (", …" if len(small) > MAX_NAMES else "")
    raise EquimetricError(
        f"{len(small)} classes have fewer than two images ({names}); every class needs at least two, "
        f"remove them or add images{remedy}"
    )
