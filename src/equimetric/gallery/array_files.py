"""Append-only files of numeric arrays: appended to, memory-mapped, or read row by row."""

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from equimetric.errors import DamagedFileError

__all__ = ["VectorFile", "append_rows", "forget_pages", "map_rows", "truncate_rows"]

GAP = 16
"""Rows up to this far apart are read together: a call costs more than the rows between."""
SPAN = 1024
"""Maximum number of requested rows of one such read."""
MAX_SINGLE_READS = 64
"""Up to this many rows are read one by one: finding neighbouring ones costs more."""


def append_rows(file: Path, num_rows: int, rows: NDArray[Any]) -> None:
    """Write rows after the first `num_rows`, replacing leftovers of an interrupted append, and sync to disk."""
    with file.open("r+b" if file.exists() else "w+b") as opened:
        opened.truncate(num_rows * _row_bytes(rows.shape[1:], rows.dtype))
        opened.seek(0, os.SEEK_END)
        opened.write(np.ascontiguousarray(rows).data)
        opened.flush()
        os.fsync(opened.fileno())


def truncate_rows(file: Path, size: int) -> None:
    """Truncate a file to `size` bytes: the rest is left by an interrupted append."""
    if file.exists() and file.stat().st_size > size:
        os.truncate(file, size)


def map_rows(file: Path, rows: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """The first rows of a file, (rows, *shape), mapped; nothing is read yet."""
    _require_size(file, rows * _row_bytes(shape, dtype))
    # Copy-on-write mode avoids a warning of torch; nothing is ever written.
    return np.memmap(file, dtype, "c", shape=(rows, *shape))


def forget_pages(rows: NDArray[Any]) -> None:
    """Release the memory of mapped rows; they are read again from the file when needed."""
    base: object = rows.base
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)


class VectorFile:
    """Reads single rows of a file without mapping them, so that they take no memory afterwards."""

    def __init__(self, file: Path, rows: int, columns: int) -> None:
        self.columns, self.bytes = columns, _row_bytes((columns,), np.float32)
        _require_size(file, rows * self.bytes)
        self.descriptor = os.open(file, os.O_RDONLY)

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """(R, columns) float32 of ascending rows (R,); those close to each other are read together."""
        if 0 < len(rows) <= MAX_SINGLE_READS:
            read = bytearray().join([os.pread(self.descriptor, self.bytes, row * self.bytes) for row in rows.tolist()])
            if len(read) == len(rows) * self.bytes:
                return np.frombuffer(read, np.float32).reshape(-1, self.columns)
        result = np.empty((len(rows), self.columns), np.float32)
        if not len(rows):
            return result
        starts = np.flatnonzero(np.diff(rows, prepend=-2 * GAP) > GAP)
        ends, buffer = np.append(starts[1:], len(rows)), result.data.cast("B")
        for start, end, first, last in zip(
            starts.tolist(), ends.tolist(), rows[starts].tolist(), rows[ends - 1].tolist(), strict=True
        ):
            if last - first == end - start - 1:
                self._fill(buffer[start * self.bytes : end * self.bytes], first * self.bytes)
                continue
            for chunk_start in range(start, end, SPAN):
                offsets = rows[chunk_start : min(chunk_start + SPAN, end)] - rows[chunk_start]
                span = np.empty((int(offsets[-1]) + 1, self.columns), np.float32)
                self._fill(span.data.cast("B"), int(rows[chunk_start]) * self.bytes)
                result[chunk_start : chunk_start + len(offsets)] = span[offsets]
        return result

    def _fill(self, buffer: memoryview, offset: int) -> None:
        """Read at an offset until the buffer is full: a long read may come in parts."""
        while buffer:
            read = os.preadv(self.descriptor, [buffer], offset)
            if not read:
                raise DamagedFileError("the vectors of a gallery end early", "restore it from a copy")
            buffer, offset = buffer[read:], offset + read

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


def _row_bytes(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    return int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize


def _require_size(file: Path, size: int) -> None:
    actual_size = file.stat().st_size
    if actual_size < size:
        raise DamagedFileError(f"{file} is damaged ({actual_size} bytes instead of {size})", "restore it from a copy")
