"""Shifted splits of a data set, by the features of a network that was not trained on it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from equimetric.backbones import InputConvention, build_backbone
from equimetric.data import (
    CenterCrop,
    Dataset,
    Resize,
    ShiftedSplit,
    Split,
    View,
    class_means,
    shifted_splits,
)
from equimetric.runs.features import cached_features
from equimetric.seeding import derive_seed

__all__ = ["shift_split"]


def shift_split(
    dataset: Dataset,
    start: Split,
    *,
    backbone: str,
    pretrained: str | None,
    swaps: int = 48,
    removals: int = 0,
    step: int = 2,
    easier: bool = False,
) -> list[ShiftedSplit]:
    """The data set's split, followed by splits that are shifted farther and farther (see `shifted_splits`).

    Classes are represented by the mean features of their images in `backbone`, with weights `pretrained` as for
    `build_backbone`; a data set of feature vectors needs no backbone.
    """
    features = dataset.images if isinstance(dataset.images, Tensor) and dataset.images.ndim == 2 else None
    if features is None:
        features = compute_features(dataset, backbone, pretrained)
    return shifted_splits(
        class_means(features, dataset.labels),
        dataset.class_names,
        train=training_classes(dataset, start),
        swaps=swaps,
        removals=removals,
        step=step,
        easier=easier,
    )


def training_classes(dataset: Dataset, split: Split) -> Sequence[int]:
    """Labels of the classes that are not test classes."""
    classes: list[int] = torch.unique(dataset.labels[torch.cat([split.train, split.validation])]).tolist()
    return classes


def compute_features(dataset: Dataset, backbone: str, pretrained: str | None) -> Tensor:
    """(N, F) features of all images; without pretrained weights those of a network with random weights of one seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(0, "shifted splits"))
        network = build_backbone(backbone, channels=dataset.channels, pretrained=pretrained)
    return cached_features(network, dataset.with_view(view_of(network.convention)))


def view_of(convention: InputConvention) -> View:
    """The centre crop of an image, in the size that a network expects."""
    return View(Resize(convention.resize, "shorter"), CenterCrop(convention.size))
