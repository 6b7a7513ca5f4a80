"""Images, or features of images, stored as arrays in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.data.dataset import Dataset
from equimetric.data.manifest import parse_part, read_columns
from equimetric.data.registry import dataset
from equimetric.errors import EquimetricError, did_you_mean, quote
from equimetric.files import require_file, unreadable_reason

__all__ = ["array_dataset", "check_vectors", "load_arrays", "load_features", "read_npz", "take_array"]

FEATURE_NAMES = ("features", "embeddings")


@dataset("arrays")
def load_arrays(*, file: str | Path, weights: str | None = None) -> Dataset:
    """Images in an .npz file: uint8 `images`, `labels`, and optionally `split` and attributes.

    images (N, S, S) grey, (N, S, S, C) or (N, C, S, S) with C = 1 or 3; labels (N,) integers or text, classes in sorted
    order. `split` (N,) is train, validation, test, query or gallery. Other text arrays of length N are sample
    attributes, and so is the array of numbers that `weights` names (`data.weights` of a run).
    """
    file = Path(file).expanduser()
    stored = read_npz(file)
    images = torch.from_numpy(_channels_first(take_array(stored, ("images",), file), file))
    return array_dataset(file, images, take_array(stored, ("labels",), file), stored, weights)


@dataset("features")
def load_features(*, file: str | Path, labels: str | Path | None = None, weights: str | None = None) -> Dataset:
    """Precomputed feature vectors in place of images: .npz with `features` and `labels`, or .npy and a label file.

    features (N, D) become `Dataset.images` in float32, with D channels and size 1, to train a head on. `labels` is an
    .npy of (N,), or a .csv or .parquet with the column `label` and optionally `split`; by default the .csv next to the
    .npy. `weights` names an array or column of numbers that becomes a sample attribute (`data.weights` of a run).
    """
    file = Path(file).expanduser()
    if file.suffix == ".npy":
        stored = _read_labels(file, None if labels is None else Path(labels).expanduser(), weights)
        stored["features"] = _read_npy(file)
    else:
        stored = read_npz(file)
    vectors = check_vectors(take_array(stored, FEATURE_NAMES, file), "features", file)
    return array_dataset(file, vectors, take_array(stored, ("labels",), file), stored, weights)


def check_vectors(array: NDArray[Any], name: str, file: Path) -> torch.Tensor:
    """The (N, D) array of a file in float32; an error where it is none of finite numbers."""
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise EquimetricError(
            f"the {name} in {str(file)!r} must be numbers of shape (N, D), not {array.dtype} of {array.shape}"
        )
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, which is refused below
        vectors = torch.from_numpy(np.asarray(array, dtype=np.float32))
    if not torch.isfinite(vectors).all():
        raise EquimetricError(f"the {name} in {str(file)!r} have values that are not finite; compute them again")
    return vectors


def array_dataset(
    file: Path, images: torch.Tensor, labels: NDArray[Any], stored: dict[str, NDArray[Any]], weights: str | None
) -> Dataset:
    """The data set of images, or vectors, with the labels, split and attributes of a file's arrays."""
    if labels.ndim != 1 or len(labels) != len(images) or labels.dtype.kind not in "iuUS":
        column = labels.ndim == 2 and labels.shape[1] == 1
        advice = "labels.squeeze(1)" if column else "labels.astype(int)" if labels.dtype.kind in "bf" else ""
        raise EquimetricError(
            f"the labels in {str(file)!r} must be {len(images)} integers or texts, one per image, "
            f"not {labels.dtype} of shape {labels.shape}" + (f"; store {advice}" if advice else "")
        )
    class_values, label_ids = np.unique(labels, return_inverse=True)
    attributes = {
        name: tuple(map(str, array.tolist()))
        for name, array in stored.items()
        if name not in ("images", "labels", "split", *FEATURE_NAMES)
        and array.shape == labels.shape
        and array.dtype.kind in "US"
    }
    if weights is not None:
        attributes[weights] = _weights(take_array(stored, (weights,), file), len(images), weights, file)
    if "split" in stored:
        attributes["part"] = _parts(stored["split"].tolist(), len(images), file)
    return Dataset(
        name=file.stem,
        images=images,
        labels=torch.from_numpy(label_ids.astype(np.int64)),
        class_names=tuple(map(str, class_values.tolist())),
        class_attributes={},
        sample_attributes=attributes,
    )


def _parts(split: Sequence[Any], images: int, file: Path) -> tuple[str, ...]:
    if len(split) != images:
        raise EquimetricError(
            f"'split' in {str(file)!r} has {len(split)} values for {images} images; give one per image"
        )
    return tuple(parse_part(str(part), file) for part in split)


def _weights(array: NDArray[Any], images: int, name: str, file: Path) -> tuple[str, ...]:
    if array.shape != (images,) or array.dtype.kind not in "fiuUS":
        raise EquimetricError(
            f"{name!r} in {str(file)!r} must be {images} numbers, one per image, not {array.dtype} of shape "
            f"{array.shape}"
        )
    return tuple(map(str, array.tolist()))


def _channels_first(images: NDArray[Any], file: Path) -> NDArray[np.uint8]:
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[2] != images.shape[3]:
        raise EquimetricError(
            f"the images in {str(file)!r} must be uint8 of shape (N, S, S), (N, S, S, C) or (N, C, S, S), "
            f"not {images.dtype} of shape {images.shape}"
        )
    return np.ascontiguousarray(images)


def take_array(stored: dict[str, NDArray[Any]], names: tuple[str, ...], file: Path) -> NDArray[Any]:
    """The first of these arrays that a file has."""
    for name in names:
        if name in stored:
            return stored[name]
    raise EquimetricError(f"{str(file)!r} has no array {names[0]!r}; {did_you_mean(names[0], stored)}")


def read_npz(file: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file by name."""
    require_file(file, "check the path")
    try:
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception as error:  # a zip file can be damaged in many ways
        raise EquimetricError(
            f"{str(file)!r} is not an .npz file of plain arrays ({error}); write it with numpy.savez"
        ) from None


def _read_npy(file: Path) -> NDArray[Any]:
    require_file(file, "check the path")
    try:
        array: NDArray[Any] = np.load(file, allow_pickle=False, mmap_mode="c")
    except (OSError, EOFError, ValueError) as error:
        raise EquimetricError(
            f"{str(file)!r} is not an .npy file of numbers ({error}); write it with numpy.save"
        ) from None
    return array


def _read_labels(file: Path, labels: Path | None, weights: str | None) -> dict[str, NDArray[Any]]:
    labels = labels or file.with_suffix(".csv")
    if unreadable_reason(labels):
        raise EquimetricError(
            f"there is no file {quote(str(labels))} with the labels of {file.name!r}; give one with the option 'labels'"
        )
    if labels.suffix == ".npy":
        return {"labels": _read_npy(labels)}
    weight_columns = () if weights is None else (weights,)
    columns = read_columns(labels, required=("label", *weight_columns), optional=("split",))
    return {"labels" if name == "label" else name: np.array(values) for name, values in columns.items()}
