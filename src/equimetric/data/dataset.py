"""Labelled images in memory, the data sets known by name, and where derived data are kept."""

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name

__all__ = [
    "Dataset",
    "DatasetDescription",
    "builtin_dataset",
    "cache_directory",
    "content_fingerprint",
    "dataset_descriptions",
    "load_dataset",
]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with one class each, all in memory.

    Shapes: images (N, C, S, S) uint8, square; labels (N,) int64, where label k is the k-th of `class_names` and every
    class has at least one image. Each entry of `class_attributes` has one value per class, each of `sample_attributes`
    one per image. `fingerprint` identifies the content, see `content_fingerprint`.
    """

    name: str
    images: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    class_attributes: Mapping[str, tuple[str, ...]] = field(repr=False)
    sample_attributes: Mapping[str, tuple[str, ...]] = field(repr=False)
    fingerprint: str

    def __post_init__(self) -> None:
        _check_images(self)
        _check_labels(self)
        _check_attributes("class", self.class_attributes, self.classes)
        _check_attributes("sample", self.sample_attributes, len(self))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {len(self)} images of {self.channels}×{self.size}×{self.size}, "
            f"{self.classes} classes, fingerprint {self.fingerprint[:12]})"
        )

    @property
    def channels(self) -> int:
        """Colour channels of an image: 1 for grey, 3 for red, green, blue."""
        return self.images.shape[1]

    @property
    def size(self) -> int:
        """Pixels along one side of the square images."""
        return self.images.shape[2]

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

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


def _take(images: Tensor, indices: Tensor) -> Tensor:
    """images[indices], without a copy where the indices are consecutive."""
    first = int(indices[0])
    stop = first + len(indices)
    if first >= 0 and torch.equal(indices, torch.arange(first, stop, device=indices.device)):
        return images[first:stop]
    return images[indices]


def _pick(values: Sequence[str], positions: Sequence[int]) -> tuple[str, ...]:
    return tuple(values[position] for position in positions)


def _check_images(dataset: Dataset) -> None:
    images = dataset.images
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[2] != images.shape[3]:
        raise EquimetricError(
            f"the images of data set {dataset.name!r} must be uint8 of shape (N, channels, size, size), "
            f"not {str(images.dtype).removeprefix('torch.')} of shape {tuple(images.shape)}"
        )
    if images.numel() == 0:
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


def content_fingerprint(images: Tensor, labels: Tensor) -> str:
    """The sha256 of images and labels, shapes included: equal exactly for equal content."""
    digest = hashlib.sha256()
    for tensor in (images, labels):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().cpu().numpy().data)
    return digest.hexdigest()


def cache_directory() -> Path:
    """Where derived data are kept: $EQUIMETRIC_CACHE, or the user's cache folder of the operating system."""
    chosen = os.environ.get("EQUIMETRIC_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("equimetric")


@dataclass(frozen=True)
class DatasetDescription:
    """What can be loaded under a name: `options` with their defaults, and the ones in `required` that have none."""

    name: str
    description: str
    required: tuple[str, ...]
    options: Mapping[str, object]


Loader = TypeVar("Loader", bound=Callable[..., Dataset])

_LOADERS: dict[str, Callable[..., Dataset]] = {}


def builtin_dataset(name: str) -> Callable[[Loader], Loader]:
    """Make a loader known by name; its keyword arguments are the options, its first docstring line the description."""

    def register(loader: Loader) -> Loader:
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
    """The data set of that name: 'glyphs', 'digits' or 'folder'; `dataset_descriptions` lists the options of each."""
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
