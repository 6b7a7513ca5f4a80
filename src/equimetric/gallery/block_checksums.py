"""Checksums of the files of a gallery, by blocks of rows: written with every append, compared by `Gallery.check`.

They are CRC-32: they detect accidental changes by a disk, a cable or a program, not deliberate ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import DamagedFileError

__all__ = ["GalleryCheck", "check_blocks", "check_whole", "extend_checksums"]

BLOCK = 2**16
"""Rows of a block."""


@dataclass(frozen=True)
class GalleryCheck:
    """Whether the files of a gallery are what was written.

    bytes     number of bytes read
    problems  a sentence for each file, or block of rows, that has changed
    skipped   files of an earlier version, which have no checksums
    """

    folder: Path
    bytes: int
    problems: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing that was read has changed."""
        return not self.problems

    def require(self) -> None:
        """Raise an error where something has changed."""
        if self.problems:
            count_text = f", and {len(self.problems) - 1} more" if len(self.problems) > 1 else ""
            raise DamagedFileError(
                f"the gallery {str(self.folder)!r} is damaged ({self.problems[0]}{count_text})",
                "restore it from a copy",
            )


def extend_checksums(old_checksums: Sequence[int], num_rows: int, rows: NDArray[Any]) -> tuple[int, ...]:
    """The checksums of all blocks after rows are appended to `num_rows` others, whose checksums are known.

    A CRC can be continued, so no earlier row is read again.
    """
    checksums, start = list(old_checksums), 0
    while start < len(rows):
        offset = (num_rows + start) % BLOCK
        chunk = np.ascontiguousarray(rows[start : start + BLOCK - offset]).data
        if offset:
            checksums[-1] = zlib.crc32(chunk, checksums[-1])
        else:
            checksums.append(zlib.crc32(chunk))
        start += BLOCK - offset
    return tuple(checksums)


def check_blocks(file: Path, rows: int, row_bytes: int, checksums: Sequence[int]) -> Iterator[str]:
    """The rows of a file that are not what was written."""
    try:
        with file.open("rb") as opened:
            for block, expected in enumerate(checksums):
                start, stop = block * BLOCK, min((block + 1) * BLOCK, rows)
                if zlib.crc32(opened.read((stop - start) * row_bytes)) != expected:
                    yield f"rows {start} to {stop - 1} of {file.name} are not what was written"
    except OSError as error:
        yield f"{file.name} cannot be read: {error.strerror}"


def check_whole(file: Path, expected: int) -> Iterator[str]:
    """Whether a small file is what was written."""
    try:
        if zlib.crc32(file.read_bytes()) != expected:
            yield f"{file.name} is not what was written"
    except OSError as error:
        yield f"{file.name} cannot be read: {error.strerror}"
