"""Vectors that arrive batch by batch: in memory at first, in a temporary file once they exceed it."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError

__all__ = ["RowStore"]

PIECE_BYTES = 2**24
"""Size of the pieces in which rows are read, sorted and sent."""


class RowStore:
    """(N, D) rows of one precision, float32 or float64, in the order of their arrival.

    Up to `memory` bytes are held in memory; beyond that all rows are in a temporary file, which is deleted with the
    store, and `array` maps it.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.count = 0
        self._pieces: list[NDArray[Any]] = []
        self._file: Any = None

    def __len__(self) -> int:
        return self.count

    @property
    def on_disk(self) -> bool:
        """Whether rows are in a file."""
        return self._file is not None

    def append(self, rows: NDArray[Any]) -> None:
        """Add (B, D) rows of the same dimension and precision as the first ones."""
        if not len(rows):
            return
        if self._pieces and (rows.shape[1], rows.dtype) != (self._pieces[0].shape[1], self._pieces[0].dtype):
            first = self._pieces[0]
            raise EquimetricError(
                f"embeddings of {rows.shape[1]} dimensions in {rows.dtype} come after those of {first.shape[1]} in "
                f"{first.dtype}; reset() before the embeddings of another model"
            )
        self.count += len(rows)
        if self._file is not None:
            self._file.write(np.ascontiguousarray(rows).data)
            return
        self._pieces.append(rows)
        if self.count * rows.shape[1] * rows.itemsize > self.memory:
            self._file = NamedTemporaryFile(prefix="equimetric-", suffix=".rows")  # noqa: SIM115
            for piece in self._pieces:
                self._file.write(np.ascontiguousarray(piece).data)
            # Keeps dimension and precision, and no rows.
            self._pieces = [rows[:0].copy()]

    def array(self) -> NDArray[Any]:
        """All rows; those in a file as a memory-mapped array, which is valid as long as the store."""
        if not self.count:
            raise EquimetricError("there are no embeddings yet; call update(embeddings, labels) first")
        if self._file is not None:
            self._file.flush()
            first = self._pieces[0]
            return np.memmap(self._file.name, first.dtype, mode="r", shape=(self.count, first.shape[1]))
        if len(self._pieces) > 1:
            self._pieces = [np.concatenate(self._pieces)]
        return self._pieces[0]

    def pieces(self) -> Iterator[slice]:
        """Ranges of rows of some megabytes each."""
        if self.count:
            row_bytes = self._pieces[0].shape[1] * self._pieces[0].itemsize
            piece_rows = max(1, PIECE_BYTES // max(row_bytes, 1))
            for start in range(0, self.count, piece_rows):
                yield slice(start, min(start + piece_rows, self.count))

    def take(self, order: NDArray[np.int64]) -> RowStore:
        """The rows at these indices, in this order; rows in a file are copied a piece at a time."""
        selected, array = RowStore(self.memory), self.array()
        for rows in self.pieces():
            selected.append(array[order[rows]])
        return selected
