"""Data sets of Hugging Face: from a folder on disk, or from an object in memory."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.data.dataset import PARTS, Dataset
from equimetric.data.decoding import convert_image
from equimetric.data.image_files import channels_first
from equimetric.data.registry import InputSize, dataset
from equimetric.data.views import fit_view
from equimetric.errors import EquimetricError, did_you_mean, quote
from equimetric.extras import import_extra
from equimetric.files import unreadable_reason

__all__ = ["from_huggingface", "load_huggingface"]


@dataset("huggingface")
def load_huggingface(
    *,
    root: str | Path,
    column: str = "image",
    label: str = "label",
    size: InputSize = 64,
    channels: int = 3,
    official: bool = False,
) -> Dataset:
    """Images or feature vectors of a Hugging Face data set, in a folder that `save_to_disk` wrote.

    `column` holds images, which become squares of `size` pixels, or lists of numbers of one length. Rows of all splits
    are taken together and divided by class; with `official` the splits train, validation and test are kept, which must
    share no class.
    """
    root = Path(root).expanduser()
    library = import_extra("datasets", "data set 'huggingface'", "datasets", "huggingface", "choose another data set")
    if not root.is_dir():
        reason = unreadable_reason(root) or "is a file"
        raise EquimetricError(f"{quote(str(root))} {reason}; give a folder that save_to_disk has written")
    try:
        data = library.load_from_disk(str(root))
    except (OSError, ValueError) as error:
        raise EquimetricError(
            f"{quote(str(root))} is no Hugging Face data set ({error}); write one with save_to_disk"
        ) from None
    return from_huggingface(
        data, column=column, label=label, size=size, channels=channels, official=official, name=root.name
    )


def from_huggingface(
    data: Any,
    *,
    column: str = "image",
    label: str = "label",
    size: int = 64,
    channels: int = 3,
    official: bool = False,
    name: str = "huggingface",
) -> Dataset:
    """A `datasets.Dataset`, or a `DatasetDict` of them, as a data set of this package; see `load_huggingface`."""
    splits: dict[str, Any] = dict(data) if isinstance(data, dict) else {"train": data}
    for rows in splits.values():
        check_rows(rows)
        for required in (column, label):
            if required not in rows.column_names:
                raise EquimetricError(
                    f"the data set has no column {required!r}; {did_you_mean(required, rows.column_names)}"
                )
    if official and (unknown := set(splits) - set(PARTS)):
        raise EquimetricError(
            f"the split {sorted(unknown)[0]!r} is none of {', '.join(PARTS)}; rename it, or leave official out"
        )
    names, labels = number_labels(splits, label)
    values = (row[column] for rows in splits.values() for row in rows.select_columns([column]))
    parts = tuple(split for split, rows in splits.items() for _ in range(len(rows)))
    return Dataset(
        name=name,
        images=stack(values, len(labels), column, size, channels),
        labels=labels,
        class_names=names,
        class_attributes={},
        sample_attributes={"part": parts} if official else {},
    )


def check_rows(rows: Any) -> None:
    """Raise an error for what is no `datasets.Dataset`, such as the name of one, or a stream."""
    if not hasattr(rows, "select_columns"):
        raise EquimetricError(f"{quote(rows)} is no Dataset or DatasetDict; give what datasets.load_dataset(…) returns")
    if not hasattr(rows, "__len__"):
        raise EquimetricError(
            f"{type(rows).__name__} is a stream of rows; load the data set without streaming=True, or collect its rows "
            "with datasets.Dataset.from_list(list(…))"
        )


def number_labels(splits: dict[str, Any], label: str) -> tuple[tuple[str, ...], Tensor]:
    """The names of the classes that occur, and the (N,) number of every row's class."""
    values = np.concatenate([np.asarray(rows[label]) for rows in splits.values()])
    if values.ndim != 1 or values.dtype.kind not in "iuU":
        raise EquimetricError(
            f"the column {label!r} holds {values.dtype} of shape {values.shape}; labels are one integer or text a row"
        )
    classes, label_ids = np.unique(values, return_inverse=True)
    first = next(iter(splits.values())).features[label]
    ids = classes.tolist()
    names = [first.int2str(i) for i in ids] if hasattr(first, "int2str") else map(str, ids)
    return tuple(names), torch.from_numpy(label_ids.astype(np.int64))


def stack(values: Iterable[Any], n: int, column: str, size: int, channels: int) -> Tensor:
    """(N, C, S, S) uint8 of images of Pillow, or (N, D) float32 of lists of numbers."""
    view, pixels = fit_view(size), np.empty((n, size, size, channels), dtype=np.uint8)
    vectors: list[Any] = []
    for row, value in enumerate(values):
        if hasattr(value, "convert"):
            pixels[row] = view.finish(convert_image(value, channels=channels, resize=view.resize), None)
        elif isinstance(value, list | np.ndarray) and np.asarray(value).ndim == 1:
            vectors.append(np.asarray(value, dtype=np.float32))
        else:
            raise EquimetricError(
                f"row {row} of the column {column!r} is of type {type(value).__name__}; give images, or a list of "
                "numbers for each row, such as the features of a text"
            )
    if not vectors:
        return channels_first(pixels)
    if len(vectors) < n or len({len(vector) for vector in vectors}) > 1:
        raise EquimetricError(f"the lists in the column {column!r} have different lengths; give vectors of one length")
    return torch.from_numpy(np.stack(vectors))
