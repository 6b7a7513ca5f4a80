"""A file of features: written in pieces, by one process at a time, and checked whenever it is opened.

It is a .npy file of (N, F) float32, with a trailer after the array: the id of the process that writes it, and the
sha256 of every piece of rows. A piece counts if its hash is right, so a killed process loses no more than the pieces it
was computing, and a damaged piece is computed again. Rows are written, never memory-mapped: an error of the disk is an
error here and not a signal.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PIECE", "FeatureFile", "OpenFeatures"]

PIECE = 256
"""Rows of a piece."""

PROCESS_BYTES, HASH_BYTES = 8, 32
SECONDS_BETWEEN_TRIES = 0.2
RESERVATION_BYTES = 2**22


@dataclass(frozen=True)
class FeatureFile:
    """The file of the (rows, columns) features of a fingerprint."""

    path: Path
    rows: int
    columns: int
    fingerprint: str

    @cached_property
    def header(self) -> bytes:
        """The first bytes of the .npy file."""
        buffer = BytesIO()
        fields = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.columns)}
        np.lib.format.write_array_header_1_0(buffer, fields)
        return buffer.getvalue()

    @property
    def pieces(self) -> int:
        """Number of pieces."""
        return -(-self.rows // PIECE)

    def piece(self, index: int) -> range:
        """The rows of a piece."""
        return range(index * PIECE, min((index + 1) * PIECE, self.rows))

    def count_rows(self, pieces: list[int]) -> int:
        """Rows of several pieces."""
        return sum(len(self.piece(index)) for index in pieces)

    def row_offset(self, row: int) -> int:
        """The byte offset of a row."""
        return len(self.header) + 4 * self.columns * row

    @property
    def process_offset(self) -> int:
        """The byte offset of the id of the writing process."""
        return self.row_offset(self.rows)

    def hash_offset(self, index: int) -> int:
        """The byte offset of the hash of a piece."""
        return self.process_offset + PROCESS_BYTES + HASH_BYTES * index

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.hash_offset(self.pieces)

    def hash_piece(self, index: int, content: bytes) -> bytes:
        """The hash of a piece at its index; it differs for other features and for other pieces."""
        digest = hashlib.sha256(f"{self.fingerprint} {index}\n".encode())
        digest.update(content)
        return digest.digest()

    @contextmanager
    def lock(self, *, write: bool, wait: Callable[[OpenFeatures], None]) -> Iterator[OpenFeatures]:
        """The opened file, with a shared lock, or an exclusive one for writing; the lock ends with the process.

        While another process holds it, `wait` is called several times a second.
        """
        while True:
            with self.path.open("r+b" if write else "rb", buffering=0) as file:
                opened = OpenFeatures(self, file.fileno())
                while not try_lock(file.fileno(), fcntl.LOCK_EX if write else fcntl.LOCK_SH):
                    wait(opened)
                    time.sleep(SECONDS_BETWEEN_TRIES)
                if opened.is_current():
                    yield opened
                    return

    def create(self) -> None:
        """An empty file, unless there is one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644))

    def map(self) -> NDArray[np.float32]:
        """Memory-map the (rows, columns) features copy-on-write, because torch requires writable memory."""
        mapped: NDArray[np.float32] = np.load(self.path, mmap_mode="c")
        return mapped


@dataclass(frozen=True)
class OpenFeatures:
    """A feature file that is open."""

    file: FeatureFile
    descriptor: int

    def is_current(self) -> bool:
        """Whether the path still leads to this file: another process may have replaced it while we waited."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), self.file.path.stat())
        except FileNotFoundError:
            return False

    def is_empty(self) -> bool:
        """Whether nothing was written yet."""
        return os.fstat(self.descriptor).st_size == 0

    def has_layout(self) -> bool:
        """Whether size and header are those of the features; older versions wrote no hashes."""
        header = self.file.header
        return (
            os.fstat(self.descriptor).st_size == self.file.size and os.pread(self.descriptor, len(header), 0) == header
        )

    def reserve(self) -> None:
        """Take all the space of the file, so that writing cannot run out of it, and write header and process id."""
        reserve_space(self.descriptor, self.file.size)
        os.pwrite(self.descriptor, self.file.header, 0)
        self.claim()

    def claim(self) -> None:
        """State that this process writes."""
        os.pwrite(self.descriptor, os.getpid().to_bytes(PROCESS_BYTES, "little"), self.file.process_offset)

    def writer(self) -> int | None:
        """The id of the process that wrote last; None where it is unknown."""
        process = int.from_bytes(os.pread(self.descriptor, PROCESS_BYTES, self.file.process_offset), "little")
        return process or None

    def hashes(self) -> list[bytes]:
        """The stored hash of every piece, zeros or nothing for those not yet written."""
        stored = os.pread(self.descriptor, HASH_BYTES * self.file.pieces, self.file.hash_offset(0))
        return [stored[HASH_BYTES * index : HASH_BYTES * (index + 1)] for index in range(self.file.pieces)]

    def find_written(self) -> list[int]:
        """Pieces that have a hash, right or wrong."""
        return [index for index, stored in enumerate(self.hashes()) if any(stored)]

    def find_missing(self) -> list[int]:
        """Pieces that do not have the right hash, all of them where the layout is not right."""
        if not self.has_layout():
            return list(range(self.file.pieces))
        stored = self.hashes()

        def is_wrong(index: int) -> bool:
            return not any(stored[index]) or self.file.hash_piece(index, self.read(index)) != stored[index]

        with ThreadPoolExecutor() as pool:
            return [index for index, wrong in enumerate(pool.map(is_wrong, range(self.file.pieces))) if wrong]

    def read(self, index: int) -> bytes:
        """The bytes of a piece."""
        rows = self.file.piece(index)
        return os.pread(self.descriptor, 4 * self.file.columns * len(rows), self.file.row_offset(rows.start))

    def write(self, index: int, features: NDArray[Any]) -> None:
        """Write the rows of a piece to the disk, then its hash, which makes it count."""
        content = np.ascontiguousarray(features, dtype="<f4").tobytes()
        write_all(self.descriptor, content, self.file.row_offset(self.file.piece(index).start))
        os.fsync(self.descriptor)
        write_all(self.descriptor, self.file.hash_piece(index, content), self.file.hash_offset(index))


def try_lock(descriptor: int, kind: int) -> bool:
    """Whether the lock could be taken at once."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_all(descriptor: int, content: bytes, offset: int) -> None:
    """Write all bytes, even where the system takes only a part of them at a time."""
    while content:
        written = os.pwrite(descriptor, content, offset)
        content, offset = content[written:], offset + written


def reserve_space(descriptor: int, size: int) -> None:
    """Fill an empty file with `size` allocated zero bytes; a full disk raises an error here."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
        else:
            return
    for start in range(0, size, RESERVATION_BYTES):
        write_all(descriptor, bytes(min(RESERVATION_BYTES, size - start)), start)
