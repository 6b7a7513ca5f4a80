"""Labelled images, in memory or in their files."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from equimetric.data.decoding import map_in_threads
from equimetric.data.image_conditions import ImageCondition
from equimetric.data.image_files import ImageFiles, channels_first
from equimetric.data.views import View, view_tensor
from equimetric.errors import EquimetricError, unknown_name

__all__ = [
    "ITEM",
    "PARTS",
    "Dataset",
    "Images",
    "condition_images",
    "content_fingerprint",
    "images_fingerprint",
    "take_images",
    "view_images",
]

Images: TypeAlias = Tensor | ImageFiles
"""A uint8 tensor (N, C, S, S), files that are decoded when indexed, or feature vectors (N, D) in float32."""

PARTS = ("train", "validation", "test", "query", "gallery")

ITEM = "item"
"""Sample attribute of paired data: rows of the same value show one item."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with one class each.

    Shapes: images (N, C, S, S) uint8, square, as a tensor or as `ImageFiles`; or feature vectors (N, D) float32 in
    place of images, with D channels and size 1. labels (N,) int64, where label k is the k-th of `class_names` and
    every class has at least one image. Each entry of `class_attributes` has one value per class, each of
    `sample_attributes` one per image. The sample attribute `part` is the official split: train, validation, test, and
    query or gallery where queries are searched for in a gallery. `fingerprint` identifies the content and is computed
    unless given (`content_fingerprint`). What was left out: `unreadable` image files and other `skipped` files, as
    'path (reason)', and `small_classes` with their numbers of images. `lookalike_reason` says why images of
    different classes look alike, where they do by their nature, such as those of characters. `modalities` are the
    dimensions of two concatenated kinds of feature vectors, by name: an image and its text.
    """

    name: str
    images: Images
    labels: Tensor
    class_names: tuple[str, ...]
    class_attributes: Mapping[str, tuple[str, ...]] = field(repr=False)
    sample_attributes: Mapping[str, tuple[str, ...]] = field(repr=False)
    fingerprint: str = ""
    unreadable: tuple[str, ...] = field(default=(), repr=False)
    skipped: tuple[str, ...] = field(default=(), repr=False)
    small_classes: Mapping[str, int] = field(default_factory=dict, repr=False)
    lookalike_reason: str = field(default="", repr=False)
    modalities: Mapping[str, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _check_images(self)
        _check_labels(self)
        _check_attributes("class", self.class_attributes, self.classes)
        _check_attributes("sample", self.sample_attributes, len(self))
        for part in set(self.sample_attributes.get("part", ())) - set(PARTS):
            raise unknown_name(f"part of data set {self.name!r}", part, PARTS)
        if self.modalities and (len(self.images.shape) != 2 or sum(self.modalities.values()) != self.channels):
            raise EquimetricError(
                f"the modalities of data set {self.name!r} must share the dimensions of its feature vectors, "
                f"not be {dict(self.modalities)} of vectors with {self.channels}"
            )
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", content_fingerprint(self))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {len(self)} images of {self.channels}×{self.size}×{self.size}, "
            f"{self.classes} classes, fingerprint {self.fingerprint[:12]})"
        )

    @property
    def channels(self) -> int:
        """Colour channels of an image: 1 for grey, 3 for red, green, blue; the dimension of feature vectors."""
        return self.images.shape[1]

    @property
    def size(self) -> int:
        """Pixels along one side of the square images; 1 for feature vectors."""
        return self.images.shape[2] if len(self.images.shape) == 4 else 1

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def part(self, *names: str) -> Tensor:
        """(M,) ascending indices of the images in these parts of the official split; all where there is none."""
        official = self.sample_attributes.get("part")
        if official is None:
            return torch.arange(len(self))
        return torch.tensor([index for index, part in enumerate(official) if part in names], dtype=torch.int64)

    def replace(self, **changes: Any) -> "Dataset":
        """A copy with other fields, and the fingerprint of its own content."""
        return replace(self, **{"fingerprint": "", **changes})

    def with_view(self, view: View) -> "Dataset":
        """The same images through a view that is not random; those in files stay there."""
        return self.replace(images=view_images(self.images, view))

    def with_condition(self, condition: ImageCondition) -> "Dataset":
        """The same images under a condition, such as `parse_condition("blur:2")`; those in files stay there."""
        return self.replace(images=condition_images(self.images, condition))

    def subset(self, indices: Tensor) -> "Dataset":
        """The images at `indices` (int64) as a data set of their own.

        The classes that occur keep their order and are renumbered 0, 1, …; a run of consecutive indices shares the
        memory of this data set.
        """
        if indices.numel() == 0:
            raise EquimetricError(f"a subset of data set {self.name!r} needs at least one image")
        kept, labels = torch.unique(self.labels[indices], return_inverse=True)
        return self.replace(
            images=take_images(self.images, indices),
            labels=labels,
            class_names=_pick(self.class_names, kept.tolist()),
            class_attributes={key: _pick(values, kept.tolist()) for key, values in self.class_attributes.items()},
            sample_attributes={key: _pick(values, indices.tolist()) for key, values in self.sample_attributes.items()},
        )


def view_images(images: Images, view: View) -> Images:
    """Images through a view that is not random; those in files stay there."""
    if view.random:
        raise EquimetricError("a data set takes a view that is not random; random views are for a Loader")
    if isinstance(images, ImageFiles):
        return images.with_view(view)
    pixels = map_in_threads(lambda image: view_tensor(image, view, None), list(images))
    return channels_first(np.stack(list(pixels))).contiguous()


def condition_images(images: Images, condition: ImageCondition) -> Images:
    """Images under a condition; those in files stay there."""
    if isinstance(images, ImageFiles):
        return images.with_condition(condition)
    if images.ndim != 4:
        raise EquimetricError(f"the condition {condition} changes images, and these data are feature vectors")
    pixels = map_in_threads(lambda image: condition(image.permute(1, 2, 0).numpy()), list(images))
    return channels_first(np.stack(list(pixels))).contiguous()


def take_images(images: Images, indices: Tensor) -> Images:
    """images[indices], without a copy for consecutive indices, without decoding for files."""
    if isinstance(images, ImageFiles):
        return images.subset(indices)
    first = int(indices[0])
    stop = first + len(indices)
    if first >= 0 and torch.equal(indices, torch.arange(first, stop, device=indices.device)):
        return images[first:stop]
    return images[indices]


def _pick(values: Sequence[str], positions: Sequence[int]) -> tuple[str, ...]:
    return tuple(values[position] for position in positions)


def _check_images(dataset: Dataset) -> None:
    images, shape = dataset.images, dataset.images.shape
    are_pixels = images.dtype == torch.uint8 and len(shape) == 4 and shape[2] == shape[3]
    are_features = images.dtype == torch.float32 and len(shape) == 2
    if not are_pixels and not are_features:
        raise EquimetricError(
            f"the images of data set {dataset.name!r} must be uint8 of shape (N, channels, size, size), "
            "or feature vectors in float32 of shape (N, D), "
            f"not {str(images.dtype).removeprefix('torch.')} of shape {tuple(shape)}"
        )
    if shape.numel() == 0:
        raise EquimetricError(f"data set {dataset.name!r} has no images; give it at least one")


def _check_labels(dataset: Dataset) -> None:
    name, labels = dataset.name, dataset.labels
    if labels.dtype != torch.int64 or labels.ndim != 1:
        raise EquimetricError(
            f"the labels of data set {name!r} must be int64 of shape (N,), "
            f"not {str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}"
        )
    if len(labels) != len(dataset.images):
        raise EquimetricError(
            f"data set {name!r} has {len(dataset.images)} images but {len(labels)} labels; give one label per image"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= dataset.classes:
        raise EquimetricError(
            f"the labels of data set {name!r} run from {low} to {high}, but its {dataset.classes} class names "
            f"allow 0 to {dataset.classes - 1}"
        )
    missing = torch.bincount(labels, minlength=dataset.classes).eq(0).nonzero()
    if len(missing):
        raise EquimetricError(
            f"class {dataset.class_names[int(missing[0])]!r} of data set {name!r} has no image; remove it or add images"
        )


def _check_attributes(kind: str, attributes: Mapping[str, tuple[str, ...]], expected: int) -> None:
    for key, values in attributes.items():
        if len(values) != expected:
            raise EquimetricError(
                f"{kind} attribute {key!r} has {len(values)} values; it needs {expected}, one per {kind}"
            )


def content_fingerprint(dataset: Dataset) -> str:
    """The sha256 of everything that results follow from: images, labels, class names, attributes and official split.

    Images in files are identified by file contents, boxes, channels, decoding and view (`ImageFiles.fingerprint`), not
    by their paths; a data set in memory by its pixels. The name of the data set and of its files do not count.
    """
    digest = hashlib.sha256()
    _update_images(digest, dataset.images)
    _update(digest, dataset.labels)
    metadata: dict[str, Any] = {
        "class_names": dataset.class_names,
        "class_attributes": dict(dataset.class_attributes),
        "sample_attributes": {key: values for key, values in dataset.sample_attributes.items() if key != "file"},
    }
    # Data of one modality keep the fingerprint that they always had.
    if dataset.modalities:
        metadata["modalities"] = list(dataset.modalities.items())
    digest.update(json.dumps(metadata, sort_keys=True).encode())
    return digest.hexdigest()


def images_fingerprint(images: Images) -> str:
    """The sha256 of the images alone, whatever their labels and split."""
    digest = hashlib.sha256()
    _update_images(digest, images)
    return digest.hexdigest()


def _update_images(digest: "hashlib._Hash", images: Images) -> None:
    if isinstance(images, ImageFiles):
        digest.update(images.fingerprint().encode())
    else:
        _update(digest, images)


def _update(digest: "hashlib._Hash", tensor: Tensor) -> None:
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
    digest.update(tensor.contiguous().cpu().numpy().data)
