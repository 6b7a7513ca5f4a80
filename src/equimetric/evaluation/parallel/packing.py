"""Objects as bytes for other processes; large arrays are kept out of band, to be shared or mapped."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from types import FunctionType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.mapped_vectors import tensor_of

__all__ = ["ALIGNMENT", "Bytes", "address", "pack", "place_aligned", "script_error", "unpack"]

Bytes = NDArray[np.uint8]
ALIGNMENT = 64
"""Bits of products depend on where vectors begin in memory, modulo this many bytes: copies keep to it."""
OUT_OF_BAND_BYTES = 2**16
"""Arrays of at least this size are kept out of band."""


class TensorPickler(pickle.Pickler):
    """Pickles tensors as arrays of bytes, and keeps the large ones out of band.

    read_only  tensors that are never written to, and so need no copy where unpacked: their ids
    """

    def __init__(self, file: io.BytesIO, read_only: AbstractSet[int] = frozenset()) -> None:
        super().__init__(file, protocol=5, buffer_callback=self.keep)
        self.read_only, self.buffers, self.tensors = read_only, list[Bytes](), list[Tensor]()

    def keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether the bytes stay in the stream."""
        content: Bytes = np.frombuffer(buffer.raw(), np.uint8)
        if len(content) < OUT_OF_BAND_BYTES:
            return True
        self.buffers.append(content)
        return False

    def reducer_override(self, obj: Any) -> Any:
        """How tensors are rebuilt; classes and functions of a script are not found by other processes."""
        if type(obj) is Tensor:
            self.tensors.append(obj)
            content = obj.detach().contiguous().as_strided((obj.numel(),), (1,)).view(torch.uint8).numpy()
            return _rebuild, (
                content,
                obj.dtype,
                obj.shape,
                address(content) % ALIGNMENT,
                id(obj) in self.read_only,
            )
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            raise EquimetricError(script_error(obj.__qualname__))
        return NotImplemented

    def dump(self, obj: Any) -> None:
        """Pickle an object; an error says what cannot be."""
        try:
            super().dump(obj)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise EquimetricError(
                f"what is evaluated cannot be sent to other processes ({error}); use one process"
            ) from error


def script_error(name: str) -> str:
    """The error message for a name that only the caller's script defines."""
    return (
        f"{name!r} is defined in the script itself, where other processes do not find it; put it into a module that "
        "can be imported, or use one process"
    )


def pack(obj: Any, read_only: Any = None) -> tuple[bytes, list[Bytes]]:
    """The bytes of an object, and its large arrays, which are its own memory and not a copy.

    Tensors that are also found in `read_only` are not copied where they are unpacked.
    """
    read_only_pickler = TensorPickler(io.BytesIO())
    read_only_pickler.dump(read_only)
    stream = io.BytesIO()
    pickler = TensorPickler(stream, {id(tensor) for tensor in read_only_pickler.tensors})
    pickler.dump(obj)
    return stream.getvalue(), pickler.buffers


def unpack(content: bytes | bytearray, buffers: Sequence[Any]) -> Any:
    """The object, over the memory of its large arrays where that may be written to, or never is."""
    return pickle.loads(content, buffers=buffers)


def address(content: NDArray[Any]) -> int:
    """Where an array begins in memory."""
    start: int = content.__array_interface__["data"][0]
    return start


def place_aligned(content: Bytes, offset: int) -> Bytes:
    """The bytes, or a copy of them, that begins at an offset modulo `ALIGNMENT`."""
    if address(content) % ALIGNMENT == offset:
        return content
    padded = np.empty(len(content) + ALIGNMENT, np.uint8)
    start = (offset - address(padded)) % ALIGNMENT
    padded[start : start + len(content)] = content
    return padded[start : start + len(content)]


def _rebuild(content: Bytes, dtype: torch.dtype, shape: torch.Size, offset: int, read_only: bool) -> Tensor:
    if read_only:
        content = place_aligned(content, offset)
    elif not content.flags.writeable:
        content = content.copy()
    return tensor_of(content).view(dtype).reshape(shape)
