"""The data of a run: the data set, its split by class, and the view through which it is evaluated."""

from __future__ import annotations

import hashlib
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypedDict

import torch
from torch import Tensor

from equimetric.data import (
    Dataset,
    Images,
    Split,
    Transform,
    load_dataset,
    sample_weights,
    shifted_split_of,
    split_by_classes,
    split_by_parts,
    split_dataset,
    split_held_out,
    take_images,
    train_in_round,
    transform,
)
from equimetric.data.attributes import count_values
from equimetric.data.registry import describe_dataset
from equimetric.errors import unknown_name
from equimetric.runs.configuration import DataConfig, ModelConfig
from equimetric.runs.image_size import warn_if_enlarged
from equimetric.runs.refit import RefitConfig
from equimetric.runs.result import DataShape

__all__ = ["RunData", "load_data_set", "load_run_data", "load_split"]


class FoldOptions(TypedDict):
    """Options of every kind of split that choose the validation classes."""

    fold: int
    folds: int
    seed: int | None


@dataclass(frozen=True, eq=False)
class RunData:
    """A data set with its split and transform.

    Attributes:
        dataset: images as stored, from which training batches are drawn and augmented.
        split: rows for training, validation and test; they share no class.
        transform: views and augmentation.
    """

    dataset: Dataset
    split: Split
    transform: Transform
    _images: dict[str, Images] = field(default_factory=dict, init=False, repr=False)

    @property
    def fingerprint(self) -> str:
        """Content hash of the data set and its class lists."""
        return self.dataset.fingerprint

    @property
    def vectors(self) -> bool:
        """Whether the data are feature vectors in place of images."""
        return len(self.dataset.images.shape) == 2

    @cached_property
    def shape(self) -> DataShape:
        """The shape that a learner is built from."""
        labels = self.dataset.labels[self.split.train]
        return DataShape(
            channels=self.dataset.channels,
            vectors=self.vectors,
            classes=len(torch.unique(labels)),
            images=len(labels),
            attributes=count_values(self.dataset, self.split.train),
            modalities=dict(self.dataset.modalities),
        )

    @cached_property
    def eval_data(self) -> Dataset:
        """The whole data set through the test view."""
        return self.dataset if self.transform.test is None else self.dataset.with_view(self.transform.test)

    @cached_property
    def train_data(self) -> Dataset:
        """The training rows as a data set of their own, class ids 0 … C − 1."""
        return self.dataset.subset(self.split.train)

    def rows(self, part: str) -> Tensor:
        """Ascending rows of one part, such as train or test; round1, round2, … for the classes of a round."""
        parts = self.split.parts()
        parts |= {f"round{index}": rows for index, rows in enumerate(self.split.rounds, start=1)}
        if part not in parts:
            raise unknown_name("part of the split", part, parts)
        return parts[part]

    def rows_of(self, *parts: str) -> Tensor:
        """Ascending rows of several parts together."""
        return torch.cat([self.rows(part) for part in parts]).sort().values

    def images(self, part: str) -> Images:
        """The images of one part through the test view, or its features."""
        if part not in self._images:
            self._images[part] = take_images(self.eval_data.images, self.rows(part))
        return self._images[part]

    def with_images(self, part: str, images: Images) -> RunData:
        """The same data with other images, or features, for the rows of one part."""
        changed = copy(self)
        object.__setattr__(changed, "_images", {**self._images, part: images})
        return changed

    def with_features(self, features: Tensor) -> RunData:
        """The same rows as (N, F) features, which need no view and no augmentation."""
        return RunData(replace(self.eval_data, images=features), self.split, transform("none"))


def load_run_data(
    config: DataConfig,
    refit: RefitConfig | None = None,
    *,
    model: ModelConfig | None = None,
    dataset: Dataset | None = None,
) -> RunData:
    """The data of a configuration; with `model`, a warning where they are too small for it.

    `dataset` is its data set where that is loaded already. Data of a final model have validation or also test rows
    among the training rows.
    """
    dataset, split = load_split(config, dataset)
    if refit is not None:
        split = split.with_train_parts(*refit.added_parts)
    if model is not None:
        warn_if_enlarged(dataset, config, model)
    vectors = len(dataset.images.shape) == 2
    return RunData(dataset, split, transform("none" if vectors else config.transform))


def load_data_set(config: DataConfig) -> Dataset:
    """The data set of a configuration, whatever its split."""
    dataset = load_dataset(config.name, **data_options(config))
    if config.weights is not None:
        sample_weights(dataset, config.weights)
    return dataset


def data_options(config: DataConfig) -> dict[str, object]:
    """The options of the data set; columns of weights and superclasses are among them where its loader takes them."""
    valid_options, options = describe_dataset(config.name).options, dict(config.options)
    if config.weights is not None and "weights" in valid_options:
        options = {"weights": config.weights, **options}
    if config.held_out is not None and "superclass" in valid_options:
        superclasses = options.get("superclass") or []
        options["superclass"] = [*([superclasses] if isinstance(superclasses, str) else superclasses), config.held_out]
    return options


def load_split(config: DataConfig, dataset: Dataset | None = None) -> tuple[Dataset, Split]:
    """The data set, loaded unless given, and its rows for training, validation and test.

    Class lists from a file are part of what identifies the data.
    """
    dataset = load_data_set(config) if dataset is None else dataset
    dataset, split = divide(dataset, config)
    if config.rounds is not None:
        split = train_in_round(split, dataset.labels, **config.rounds.model_dump())
    return dataset, split


def divide(dataset: Dataset, config: DataConfig) -> tuple[Dataset, Split]:
    """The data set by lists of classes, by superclasses, by lists from a file, or by its own split."""
    if config.parts is not None:
        return dataset, split_by_parts(dataset, config.parts.lists())
    folds: FoldOptions = {"fold": config.fold, "folds": config.folds, "seed": config.split_seed}
    if config.held_out is not None:
        return dataset, split_held_out(dataset, config.held_out, **folds)
    if config.split is None:
        return dataset, split_dataset(dataset, **folds)
    shifted = shifted_split_of(config.split.file, config.split.number, dataset)
    split = split_by_classes(dataset, train=shifted.train, test=shifted.test, **folds)
    # The last words distinguish these runs from older ones, whose validation classes were rounded down.
    lists = f"{shifted.train} {shifted.test} rounded up"
    identity = hashlib.sha256(f"{dataset.fingerprint} {lists}".encode()).hexdigest()
    return replace(dataset, fingerprint=identity), split
