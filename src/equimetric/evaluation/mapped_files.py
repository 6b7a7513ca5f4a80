"""Arrays of files that need not be read as a whole: .npy and .safetensors, mapped where they are large."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError

__all__ = ["MAPPED_BYTES", "read_npy", "read_safetensors"]

MAPPED_BYTES = 2**28
"""Arrays from this size on are mapped: only what is read of them is in memory."""
MAX_HEADER_BYTES = 10**8
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}


def read_npy(file: Path) -> NDArray[Any] | None:
    """The array of an .npy file; None for a file that is none, or holds other things than numbers and strings."""
    try:
        mapped = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError, TypeError):
        return None
    if not isinstance(mapped, np.memmap):
        return None
    return mapped if mapped.nbytes >= MAPPED_BYTES else np.array(mapped)


def read_safetensors(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a .safetensors file by name: its header is JSON after eight bytes with its length."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > MAX_HEADER_BYTES:
                raise ValueError("its header is too long")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        return {name: _map(file, name, entry, 8 + length) for name, entry in header.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        if isinstance(problem, EquimetricError):
            raise
        raise EquimetricError(f"{str(file)!r} is not a .safetensors file ({problem})") from None


def _map(file: Path, name: str, entry: dict[str, Any], begin: int) -> NDArray[Any]:
    """An array, mapped, or read where it is small."""
    if entry["dtype"] not in DTYPES:
        raise EquimetricError(
            f"array {name!r} of {str(file)!r} is of type {entry['dtype']}; save it as F16, F32 or F64, labels as I64"
        )
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(map(int, entry["shape"]))
    start, stop = entry["data_offsets"]
    if stop - start != math.prod(shape) * dtype.itemsize or start < 0:
        raise ValueError(f"array {name!r} does not have the size of its shape")
    if not math.prod(shape):
        return np.empty(shape, dtype)
    mapped: NDArray[Any] = np.memmap(file, dtype, "r", begin + start, shape)
    return mapped if mapped.nbytes >= MAPPED_BYTES else np.array(mapped)
