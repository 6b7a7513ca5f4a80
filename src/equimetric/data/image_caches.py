"""Caches of decoded and resized images: in memory up to a number of bytes, or in one memory-mapped file."""

import os
import shutil
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from equimetric.data.views import Resize
from equimetric.errors import StorageError
from equimetric.files import explain_write_error, sync_folder, unfinished_folder

__all__ = ["DiskCache", "MemoryCache"]


class MemoryCache:
    """Images by file index and resizing, until `capacity` bytes are used; later ones are not kept.

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
    """All images one after the other in a memory-mapped file; `table` has offset, height, width and CRC of each."""

    folder: Path
    inode: int
    memory: NDArray[np.uint8]
    table: NDArray[np.int64]
    channels: int

    @classmethod
    def open(cls, folder: Path, channels: int) -> "DiskCache | None":
        """The cache in a folder, or None where it is missing or damaged; single images are checked when read."""
        try:
            table = np.load(folder / "table.npy", allow_pickle=False)
            memory = np.memmap(folder / "pixels", dtype=np.uint8, mode="r")
            inode = (folder / "pixels").stat().st_ino
        except Exception:  # a damaged header can raise almost anything
            return None
        if table.dtype != np.int64 or table.ndim != 2 or table.shape[1] != 4 or (table[:, 1:3] <= 0).any():
            return None
        offset, height, width, _ = table.T
        ends = [0, *(height * width * channels).cumsum().tolist()]
        complete = [*offset.tolist(), len(memory)] == ends
        return cls(folder, inode, memory, table, channels) if complete else None

    @classmethod
    def open_or_write(
        cls, folder: Path, images: Iterable[NDArray[np.uint8]], channels: int, damaged: "DiskCache | None" = None
    ) -> "DiskCache":
        """The cache in a folder; where there is none, or only the damaged one, one process writes it, others wait.

        images   (H, W, C) arrays, taken only to write them
        """

        def open_undamaged() -> "DiskCache | None":
            cache = cls.open(folder, channels)
            return None if cache is None or (damaged is not None and cache.inode == damaged.inode) else cache

        try:
            # Checked before it is opened: another process may write it in between.
            existed = (folder / "table.npy").exists()
            cache = open_undamaged()
            if cache is None:
                if damaged is None and existed:
                    warnings.warn(f"{folder} is damaged; the images are decoded and cached again", stacklevel=2)
                with unfinished_folder(folder) as unfinished:
                    cache = open_undamaged() or cls.write(folder, unfinished, images, channels)
        except OSError as error:
            reason = explain_write_error(error)
            raise StorageError(
                f"the cache of decoded images cannot be written to {str(folder.parent)!r}: {reason}; "
                "choose another place with the environment variable EQUIMETRIC_CACHE, or cache='memory' or 'none'"
            ) from None
        return cache

    @classmethod
    def write(cls, folder: Path, unfinished: Path, images: Iterable[NDArray[np.uint8]], channels: int) -> "DiskCache":
        """Write images into an unfinished folder, which appears under its name only when it is complete."""
        table: list[tuple[int, int, int, int]] = []
        end = 0
        with (unfinished / "pixels").open("wb") as stream:
            for pixels in images:
                data = pixels.tobytes()
                stream.write(data)
                table.append((end, pixels.shape[0], pixels.shape[1], crc32(data)))
                end += len(data)
            stream.flush()
            os.fsync(stream.fileno())
        with (unfinished / "table.npy").open("wb") as stream:
            np.save(stream, np.array(table, dtype=np.int64))
            stream.flush()
            os.fsync(stream.fileno())
        shutil.rmtree(folder, ignore_errors=True)  # a damaged one
        unfinished.rename(folder)
        sync_folder(folder.parent)
        written = cls.open(folder, channels)
        assert written is not None
        return written

    def read(self, index: int) -> NDArray[np.uint8] | None:
        """(H, W, C) pixels of one image, or None where they are damaged."""
        offset, height, width, crc = self.table[index].tolist()
        flat = np.asarray(self.memory[offset : offset + height * width * self.channels])
        return flat.reshape(height, width, self.channels) if crc32(flat.data) == crc else None
