"""Caches of decoded and resized images: in memory up to a number of bytes, or in one memory-mapped file."""

import errno
import shutil
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from equimetric.data.views import Resize
from equimetric.errors import StorageError

__all__ = ["DiskCache", "MemoryCache"]


class MemoryCache:
    """Images by file number and resizing, until `capacity` bytes are used; later ones are not kept.

    Nothing is evicted: in training every image is needed equally often.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.images: dict[tuple[int, Resize | None], NDArray[np.uint8]] = {}
        self.lock = threading.Lock()

    def add(self, key: tuple[int, Resize | None], pixels: NDArray[np.uint8]) -> None:
        """Keep an image if there is room."""
        with self.lock:
            if key not in self.images and self.used + pixels.nbytes <= self.capacity:
                self.images[key] = pixels
                self.used += pixels.nbytes


@dataclass(frozen=True, eq=False)
class DiskCache:
    """All images one after the other in a memory-mapped file; `table` has offset, height and width of each."""

    memory: NDArray[np.uint8]
    table: NDArray[np.int64]
    channels: int

    @classmethod
    def open(cls, folder: Path, channels: int) -> "DiskCache | None":
        """The cache in a folder, or None where it is missing or damaged."""
        try:
            table = np.load(folder / "table.npy", allow_pickle=False)
            memory = np.memmap(folder / "pixels", dtype=np.uint8, mode="r")
        except (OSError, EOFError, ValueError):
            return None
        offset, height, width = table[-1].tolist()
        return cls(memory, table, channels) if len(memory) == offset + height * width * channels else None

    @classmethod
    def write(cls, folder: Path, images: Iterable[NDArray[np.uint8]], channels: int) -> "DiskCache":
        """Write (H, W, C) images into a folder that appears under its name only when it is complete."""
        try:
            _write_folder(folder, images)
        except OSError as error:
            why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
            raise StorageError(
                f"the cache of decoded images cannot be written to {str(folder.parent)!r}: {why}; "
                "choose another place with the environment variable EQUIMETRIC_CACHE, or cache='memory' or 'none'"
            ) from None
        written = cls.open(folder, channels)
        assert written is not None
        return written

    def read(self, number: int) -> NDArray[np.uint8]:
        """(H, W, C) pixels of one image."""
        offset, height, width = self.table[number].tolist()
        flat = self.memory[offset : offset + height * width * self.channels]
        return np.asarray(flat).reshape(height, width, self.channels)


def _write_folder(folder: Path, images: Iterable[NDArray[np.uint8]]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        table: list[tuple[int, int, int]] = []
        end = 0
        with (temporary / "pixels").open("wb") as stream:
            for pixels in images:
                stream.write(pixels.tobytes())
                table.append((end, pixels.shape[0], pixels.shape[1]))
                end += pixels.nbytes
        np.save(temporary / "table.npy", np.array(table, dtype=np.int64))
        if folder.exists():  # damaged, or another process was faster; both have the same content
            shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
