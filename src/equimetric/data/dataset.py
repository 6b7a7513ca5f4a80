"""Labelled images, in memory or in their files, and the data sets known by name."""

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from equimetric.data.decoding import in_threads
from equimetric.data.image_files import ImageFiles, channels_first
from equimetric.data.views import View, view_tensor
from equimetric.errors import EquimetricError, unknown_name

__all__ = [
    "Dataset",
    "DatasetDescription",
    "Images",
    "builtin_dataset",
    "content_fingerprint",
    "dataset_descriptions",
    "load_dataset",
    "view_images",
]


Images: TypeAlias = Tensor | ImageFiles
"""A uint8 tensor (N, C, S, S), files that are decoded when indexed, or feature vectors (N, D) in float32."""

PARTS = ("train", "validation", "test", "query", "gallery")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with one class each.

    Shapes: images (N, C, S, S) uint8, square, as a tensor or as `ImageFiles`; or feature vectors (N, D) float32 that
    stand for the images, of D channels and size 1. labels (N,) int64, where label k is the k-th of `class_names` and
    every class has at least one image. Each entry of `class_attributes` has one value per class, each of
    `sample_attributes` one per image. The sample attribute `part` is the official split: train, validation, test, and
    query or gallery where the test images are searched for in others. `fingerprint` identifies the content, see
    `content_fingerprint`. `unreadable` lists the files that were left out, as 'path (reason)'.
    """

    name: str
    images: Images
    labels: Tensor
    class_names: tuple[str, ...]
    class_attributes: Mapping[str, tuple[str, ...]] = field(repr=False)
    sample_attributes: Mapping[str, tuple[str, ...]] = field(repr=False)
    fingerprint: str
    unreadable: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        _check_images(self)
        _check_labels(self)
        _check_attributes("class", self.class_attributes, self.classes)
        _check_attributes("sample", self.sample_attributes, len(self))
        for part in set(self.sample_attributes.get("part", ())) - set(PARTS):
            raise unknown_name(f"part of data set {self.name!r}", part, PARTS)

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
        """How many classes there are."""
        return len(self.class_names)

    def part(self, *names: str) -> Tensor:
        """(M,) ascending indices of the images in these parts of the official split; all where there is none."""
        official = self.sample_attributes.get("part")
        if official is None:
            return torch.arange(len(self))
        return torch.tensor([index for index, part in enumerate(official) if part in names], dtype=torch.int64)

    def viewed(self, view: View) -> "Dataset":
        """The same images through a view that is not random; those in files stay there."""
        if view.random:
            raise EquimetricError("a data set is seen through a view that is not random; random ones are for a Loader")
        images = view_images(self.images, view)
        return replace(self, images=images, fingerprint=content_fingerprint(images, self.labels))

    def subset(self, indices: Tensor) -> "Dataset":
        """The images at `indices` (int64) as a data set of their own.

        The classes that occur keep their order and are renumbered 0, 1, …; a run of consecutive indices shares the
        memory of this data set.
        """
        if indices.numel() == 0:
            raise EquimetricError(f"a subset of data set {self.name!r} needs at least one image")
        kept, labels = torch.unique(self.labels[indices], return_inverse=True)
        images = _take(self.images, indices)
        return replace(
            self,
            images=images,
            labels=labels,
            class_names=_pick(self.class_names, kept.tolist()),
            class_attributes={key: _pick(values, kept.tolist()) for key, values in self.class_attributes.items()},
            sample_attributes={key: _pick(values, indices.tolist()) for key, values in self.sample_attributes.items()},
            fingerprint=content_fingerprint(images, labels),
        )


def view_images(images: Images, view: View) -> Images:
    """Images through a view that is not random; those in files stay there."""
    if isinstance(images, ImageFiles):
        return images.viewed(view)
    viewed = in_threads(lambda image: view_tensor(image, view, None), list(images))
    return channels_first(np.stack(list(viewed))).contiguous()


def _take(images: Images, indices: Tensor) -> Images:
    """images[indices], without a copy where the indices are consecutive, without decoding where they are files."""
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
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= dataset.classes:
        raise EquimetricError(
            f"the labels of data set {name!r} run from {lowest} to {highest}, but its {dataset.classes} class names "
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


def content_fingerprint(images: Images, labels: Tensor) -> str:
    """The sha256 of images and labels, shapes included: equal exactly for equal content.

    For images in files it takes names and sizes of the files instead of their pixels.
    """
    digest = hashlib.sha256()
    if isinstance(images, ImageFiles):
        digest.update(images.fingerprint().encode())
    for tensor in (labels,) if isinstance(images, ImageFiles) else (images, labels):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().cpu().numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class DatasetDescription:
    """What can be loaded under a name: `options` with their defaults, and the ones in `required` that have none."""

    name: str
    description: str
    required: tuple[str, ...]
    options: Mapping[str, object]


LoadingFunction = TypeVar("LoadingFunction", bound=Callable[..., Dataset])

_LOADERS: dict[str, Callable[..., Dataset]] = {}


def builtin_dataset(name: str) -> Callable[[LoadingFunction], LoadingFunction]:
    """Make a loader known by name; its keyword arguments are the options, its first docstring line the description."""

    def register(loader: LoadingFunction) -> LoadingFunction:
        _LOADERS[name] = loader
        return loader

    return register


def _describe(name: str) -> DatasetDescription:
    loader = _LOADERS[name]
    parameters = inspect.signature(loader).parameters.values()
    return DatasetDescription(
        name=name,
        description=(inspect.getdoc(loader) or "").partition("\n")[0],
        required=tuple(parameter.name for parameter in parameters if parameter.default is parameter.empty),
        options={
            parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty
        },
    )


def dataset_descriptions() -> tuple[DatasetDescription, ...]:
    """All data sets that `load_dataset` knows, by name."""
    return tuple(_describe(name) for name in sorted(_LOADERS))


def load_dataset(name: str, /, **options: object) -> Dataset:
    """The data set of that name; `dataset_descriptions` lists the names, and the options of each."""
    if name not in _LOADERS:
        raise unknown_name("data set", name, _LOADERS)
    known = _describe(name)
    for option in options:
        if option not in (*known.required, *known.options):
            raise unknown_name(f"option of data set {name!r}", option, (*known.required, *known.options))
    for option in known.required:
        if option not in options:
            raise EquimetricError(f"data set {name!r} needs the option {option!r}; give it a value")
    return _LOADERS[name](**options)
