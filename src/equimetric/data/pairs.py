"""Items of two modalities: features of an image and of its text, of a sketch and a photograph."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from equimetric.data.arrays import array_dataset, check_vectors, read_npz, take_array
from equimetric.data.dataset import ITEM, Dataset
from equimetric.data.registry import dataset
from equimetric.errors import EquimetricError
from equimetric.files import require_file

__all__ = ["load_pairs"]


@dataset("pairs")
def load_pairs(*, file: str | Path, first: str = "image", second: str = "text", weights: str | None = None) -> Dataset:
    """Items of two modalities as features, such as an image with its text: an .npz or .safetensors file.

    Arrays `image` (N, D₁), `text` (N, D₂), `labels` (N,) and optionally `item` (N,) and `split`; `first` and `second`
    give the modalities' arrays other names. Row i of both is one item. An item of several texts has several rows, with
    its image in each and the same number or name in `item`. Both modalities are concatenated in `Dataset.images`,
    (N, D₁ + D₂), and `Dataset.modalities` tells their dimensions.
    """
    file = Path(file).expanduser()
    stored = read_tensors(file) if file.suffix == ".safetensors" else read_npz(file)
    if first == second:
        raise EquimetricError(f"first and second are both {first!r}; name the arrays of two modalities")
    left, right = (check_vectors(take_array(stored, (name,), file), repr(name), file) for name in (first, second))
    if len(left) != len(right):
        raise EquimetricError(
            f"{first!r} has {len(left)} rows and {second!r} {len(right)} in {str(file)!r}; give both the same number, "
            "row i of one belonging to row i of the other"
        )
    if ITEM in stored:
        stored[ITEM] = check_items(stored[ITEM], len(left), file)
    data = array_dataset(file, torch.cat([left, right], 1), take_array(stored, ("labels",), file), stored, weights)
    return data.replace(modalities={first: left.shape[1], second: right.shape[1]})


def check_items(items: NDArray[Any], rows: int, file: Path) -> NDArray[Any]:
    """The (N,) items of a file as text."""
    if items.shape != (rows,) or items.dtype.kind not in "iuUS":
        raise EquimetricError(
            f"{ITEM!r} in {str(file)!r} must be {rows} integers or texts, one per row, not {items.dtype} of shape "
            f"{items.shape}"
        )
    return items.astype(str)


def read_tensors(file: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a .safetensors file by name."""
    require_file(file, "check the path")
    try:
        return {name: np.asarray(array) for name, array in load_file(file).items()}
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise EquimetricError(
            f"{str(file)!r} is not a .safetensors file of plain arrays ({error}); write it with safetensors.numpy"
        ) from None
