"""Vectors that stay on disk: rows of a memory-mapped array, converted whenever they are read."""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError

__all__ = ["MappedFile", "MappedVectors", "Vectors", "is_mapped", "load_vectors", "tensor_of"]

CHECKED_PIECES, PIECE_BYTES = 64, 4096
"""Pieces of a file, evenly spread, by which another process knows that it has opened the same one."""


@dataclass(frozen=True)
class MappedFile:
    """An array in a file: where it begins and how it is laid out; no path where the file has no name."""

    path: str | None
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @classmethod
    def from_array(cls, array: np.memmap[Any, Any]) -> MappedFile:
        """Where a mapped array, or a part of one, comes from."""
        root = array
        while isinstance(root.base, np.memmap):
            root = root.base
        start, first = (mapped.__array_interface__["data"][0] for mapped in (array, root))
        path = None if root.filename is None else str(root.filename)
        return cls(path, root.offset + start - first, array.shape, array.strides, array.dtype.str)

    def hash_pieces(self) -> str:
        """SHA-256 of the size of the file and of some of its bytes, by which other processes know it."""
        if self.path is None:
            raise EquimetricError(
                "the embeddings are mapped from a file without a name, which other processes cannot open; map them "
                "with numpy.load(file, mmap_mode='r')"
            )
        digest = hashlib.sha256()
        try:
            with Path(self.path).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                digest.update(str(size).encode())
                for i in range(CHECKED_PIECES):
                    file.seek(max(0, size - PIECE_BYTES) * i // (CHECKED_PIECES - 1))
                    digest.update(file.read(PIECE_BYTES))
        except OSError as error:
            raise EquimetricError(
                f"a process on {os.uname().nodename!r} cannot read {self.path!r} ({error.strerror}); put the file "
                "where all processes find it under this path"
            ) from None
        return digest.hexdigest()

    def open(self, digest: str) -> NDArray[Any]:
        """The array, mapped by this process, of a file whose pieces have a known hash."""
        if self.hash_pieces() != digest:
            raise EquimetricError(
                f"{self.path!r} on {os.uname().nodename!r} is not the file that is evaluated, or has changed since; "
                "all processes must find the same one"
            )
        assert self.path is not None
        with Path(self.path).open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.ndarray(self.shape, np.dtype(self.dtype), content, self.offset, self.strides)


@dataclass(frozen=True, eq=False)
class MappedVectors:
    """(N, D) vectors of which only the rows that are read are in memory; rows are read like those of a tensor.

    stored  (N, D₀) floating-point numbers of any precision, not in memory
    file    where they are
    dtype   of the rows that are read
    norms   (N,) float64 by which rows are divided first; None for rows as they are
    signs   entries above zero become +1, others −1
    scale   a power of two by which rows are divided, which rounds nothing
    extra   (N, E) columns after those of the array
    """

    stored: Tensor
    file: MappedFile
    dtype: torch.dtype
    norms: Tensor | None = None
    signs: bool = False
    scale: float = 1.0
    extra: Tensor | None = None

    @classmethod
    def from_array(cls, array: np.memmap[Any, Any]) -> MappedVectors:
        """Vectors as they are stored; half precision is read as float32."""
        stored = tensor_of(array)
        return cls(stored, MappedFile.from_array(array), torch.promote_types(stored.dtype, torch.float32))

    @property
    def shape(self) -> torch.Size:
        """(N, D)."""
        columns = self.stored.shape[1] + (0 if self.extra is None else self.extra.shape[1])
        return torch.Size([len(self.stored), columns])

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return self.stored.device

    @property
    def converts_on_read(self) -> bool:
        """Whether rows that are read differ from those that are stored."""
        plain = self.norms is None and not self.signs and self.scale == 1 and self.extra is None
        return not plain or self.dtype != self.stored.dtype

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, which: Tensor | slice) -> Tensor:
        """Rows by a range, or by indices of any shape: (…, D)."""
        rows = self.stored[which].to(self.dtype)
        if self.norms is not None:
            rows = (rows.double() / self.norms[which][..., None]).to(self.dtype)
        if self.signs:
            rows = (rows > 0).to(self.dtype).mul_(2).sub_(1)
        if self.scale != 1:
            rows = rows / self.scale
        return rows if self.extra is None else torch.cat([rows, self.extra[which]], dim=-1)

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """(P, D) rows by their indices; `dim` is 0, as of a tensor."""
        assert dim == 0
        return self[rows]

    def to(self, dtype: torch.dtype) -> MappedVectors:
        """These vectors in another precision."""
        return replace(self, dtype=dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes map the file themselves."""
        conversion = self.dtype, self.norms, self.signs, self.scale, self.extra
        return _reopen, (self.file, self.file.hash_pieces(), *conversion)


Vectors = Tensor | MappedVectors
"""(N, D) vectors in memory, or on disk."""


def is_mapped(array: object) -> bool:
    """Whether an array is mapped from a file, and can be read from there row by row."""
    return (
        isinstance(array, np.memmap)
        and array.ndim == 2
        and array.dtype.kind == "f"
        and array.dtype.isnative
        and array.dtype.itemsize <= 8
        and array.size > 0
        and array.strides[1] == array.itemsize
        and array.strides[0] >= 0
        and array.strides[0] % array.itemsize == 0
    )


def load_vectors(vectors: Vectors, reader: str) -> Tensor:
    """The vectors in memory, for a `reader` of all of them at once; an error where they do not fit."""
    if isinstance(vectors, Tensor):
        return vectors
    needed, free = vectors.shape.numel() * vectors.dtype.itemsize, _available_bytes()
    if needed > free:
        raise EquimetricError(
            f"{reader} needs all vectors in memory, {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free; "
            "leave it out, or evaluate some of the rows"
        )
    return vectors[:]


def tensor_of(array: NDArray[Any]) -> Tensor:
    """A tensor over the same memory, which nothing may write to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that torch has no tensors which are read-only
        return torch.from_numpy(array)


def _reopen(file: MappedFile, digest: str, *conversion: Any) -> MappedVectors:
    return MappedVectors(tensor_of(file.open(digest)), file, *conversion)


def _available_bytes() -> int:
    """Memory that can be taken without swapping; on other systems than Linux all there is."""
    if sys.platform == "linux":
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 2**10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
