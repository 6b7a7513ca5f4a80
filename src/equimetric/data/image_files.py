"""Images that stay in their files until they are looked at.

`ImageFiles` stands where a data set in memory has its tensor: `images[indices]` gives uint8 (B, C, S, S). The files are
decoded by threads, through a view (`equimetric.data.views`); what the view's resizing gives may be kept in memory or on
disk, so that a second look costs no decoding.
"""

import contextlib
import errno
import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.data.decoding import Box, Decoding, decode, in_threads
from equimetric.data.storage import cache_directory
from equimetric.data.views import Draws, Resize, View, pillow_image
from equimetric.errors import EquimetricError
from equimetric.files import write_atomically

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

__all__ = ["CacheKind", "FileStore", "ImageFiles", "damaged_files"]

CacheKind: TypeAlias = Literal["none", "memory", "disk"]

MEMORY_CACHE_BYTES = 2 * 2**30
CACHE_VERSION = 2  # raise it whenever decoding or resizing gives other pixels, so that older caches are not used


class FileStore:
    """Image files with optional bounding boxes, decoded one by one; shared by all data sets made from the same list.

    root     the folder that file names are counted from in fingerprints, so that a moved archive keeps its own
    cache    "none":   decode at every look
             "memory": keep resized images until `cache_bytes` are in use; later ones are decoded at every look
                       (nothing is thrown out: in training every image comes round equally often)
             "disk":   at the first look, decode all files into one memory-mapped file under `cache_directory()`
    decoding "exact", or "fast" for large JPEGs (see `decode`)
    """

    def __init__(
        self,
        files: Sequence[Path],
        *,
        root: Path | None = None,
        boxes: Sequence[Box | None] | None = None,
        channels: int = 3,
        cache: CacheKind = "none",
        decoding: Decoding = "exact",
        cache_bytes: int = MEMORY_CACHE_BYTES,
    ) -> None:
        if channels not in (1, 3):
            raise EquimetricError(f"channels must be 3 (colour) or 1 (grey), not {channels!r}")
        if cache not in ("none", "memory", "disk"):
            raise EquimetricError(f"cache must be 'none', 'memory' or 'disk', not {cache!r}")
        if decoding not in ("exact", "fast"):
            raise EquimetricError(f"decoding must be 'exact' or 'fast', not {decoding!r}")
        if not files:
            raise EquimetricError("there are no image files; give at least one")
        if boxes is not None and len(boxes) != len(files):
            raise EquimetricError(f"there are {len(files)} files but {len(boxes)} bounding boxes; give one per file")
        self.files = tuple(files)
        self.root = root
        self.boxes = None if boxes is None else tuple(boxes)
        self.channels = channels
        self.cache = cache
        self.decoding = decoding
        self.memory = _MemoryCache(cache_bytes)
        self.on_disk: dict[Resize | None, _DiskCache] = {}
        self.lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        """What another process needs to read the files itself; caches in memory stay behind."""
        return {
            "files": self.files,
            "root": self.root,
            "boxes": self.boxes,
            "channels": self.channels,
            "cache": self.cache,
            "decoding": self.decoding,
            "cache_bytes": self.memory.capacity,
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def resized(self, number: int, resize: Resize | None) -> "PillowImage":
        """File `number`, decoded and resized; from the cache where there is one."""
        if self.cache == "none":
            return self.decode(number, resize)
        if self.cache == "disk":
            return pillow_image(self._disk_cache(resize).pixels(number))
        kept = self.memory.images.get((number, resize))
        if kept is None:
            kept = self._pixels(number, resize)
            self.memory.keep((number, resize), kept)
        return pillow_image(kept)

    def decode(self, number: int, resize: Resize | None, decoding: Decoding | None = None) -> "PillowImage":
        """File `number`, decoded and resized now; `decoding` in place of the store's own."""
        outcome = self.attempt(number, resize, decoding)
        if isinstance(outcome, str):
            raise EquimetricError(f"an image cannot be read: {outcome}; remove it, or load with damaged='skip'")
        return outcome

    def attempt(self, number: int, resize: Resize | None, decoding: Decoding | None = None) -> "PillowImage | str":
        """File `number`, decoded and resized now, or 'path (reason)' where it cannot be."""
        file = self.files[number]
        try:
            return decode(
                file,
                channels=self.channels,
                resize=resize,
                box=self.box(number),
                decoding=decoding or self.decoding,
            )
        except Exception as error:  # a damaged file can raise almost anything from inside a decoder
            return f"{file} ({str(error).replace(str(file), file.name) or type(error).__name__})"

    def box(self, number: int) -> Box | None:
        """The bounding box of file `number`, if there are any."""
        return None if self.boxes is None else self.boxes[number]

    @cached_property
    def bytes_of_files(self) -> tuple[int, ...]:
        """The size of every file."""
        return tuple(file.stat().st_size for file in self.files)

    def name(self, number: int) -> str:
        """File `number` as counted from `root`."""
        file = self.files[number]
        inside = self.root is not None and file.is_relative_to(self.root)
        return (file.relative_to(self.root) if self.root is not None and inside else file).as_posix()

    def _pixels(self, number: int, resize: Resize | None) -> NDArray[np.uint8]:
        image = self.decode(number, resize)
        return np.asarray(image, dtype=np.uint8).reshape(image.height, image.width, self.channels)

    def _disk_cache(self, resize: Resize | None) -> "_DiskCache":
        with self.lock:
            if resize not in self.on_disk:
                self.on_disk[resize] = self._open_disk_cache(resize)
            return self.on_disk[resize]

    def _open_disk_cache(self, resize: Resize | None) -> "_DiskCache":
        folder = cache_directory() / "images" / self.fingerprint(resize)
        found = _DiskCache.open(folder, self.channels)
        if found is not None:
            return found
        try:
            self._write_disk_cache(folder, resize)
        except OSError as error:
            why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
            raise EquimetricError(
                f"the cache of decoded images cannot be written to {str(folder.parent)!r}: {why}; "
                "choose another place with the environment variable EQUIMETRIC_CACHE, or cache='memory' or 'none'"
            ) from None
        written = _DiskCache.open(folder, self.channels)
        assert written is not None
        return written

    def _write_disk_cache(self, folder: Path, resize: Resize | None) -> None:
        """All files decoded into a folder that appears under its name only when it is complete."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            table = np.zeros((len(self.files), 3), dtype=np.int64)
            end = 0
            decoded = in_threads(
                lambda number: self._pixels(number, resize), range(len(self.files)), description="Decoding images"
            )
            with (building / "pixels").open("wb") as stream:
                for number, pixels in enumerate(decoded):
                    stream.write(pixels.tobytes())
                    table[number] = (end, pixels.shape[0], pixels.shape[1])
                    end += pixels.nbytes
            np.save(building / "table.npy", table)
            if folder.exists():  # damaged, or another process was faster; both hold what this one holds
                shutil.rmtree(folder, ignore_errors=True)
            building.rename(folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)

    def fingerprint(self, resize: Resize | None) -> str:
        """Of everything the decoded pixels follow from: which files, their sizes and times, boxes, and the resizing."""
        from PIL import __version__ as pillow_version

        digest = hashlib.sha256(f"{CACHE_VERSION} {pillow_version} {self.channels} {resize} {self.decoding}\n".encode())
        for number, file in enumerate(self.files):
            found = file.stat()
            digest.update(f"{file.absolute()} {found.st_size} {found.st_mtime_ns} {self.box(number)}\n".encode())
        return digest.hexdigest()[:32]


class _MemoryCache:
    """Images by file number and resizing, up to a number of bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.images: dict[tuple[int, Resize | None], NDArray[np.uint8]] = {}
        self.lock = threading.Lock()

    def keep(self, key: tuple[int, Resize | None], pixels: NDArray[np.uint8]) -> None:
        with self.lock:
            if key not in self.images and self.used + pixels.nbytes <= self.capacity:
                self.images[key] = pixels
                self.used += pixels.nbytes


@dataclass(frozen=True, eq=False)
class _DiskCache:
    """All images one after the other in a memory-mapped file; `table` has offset, height and width of each."""

    memory: NDArray[np.uint8]
    table: NDArray[np.int64]
    channels: int

    @staticmethod
    def open(folder: Path, channels: int) -> "_DiskCache | None":
        """The cache in a folder, or None where there is none or it is damaged."""
        try:
            table = np.load(folder / "table.npy", allow_pickle=False)
            memory = np.memmap(folder / "pixels", dtype=np.uint8, mode="r")
        except (OSError, EOFError, ValueError):
            return None
        offset, height, width = table[-1].tolist()
        return _DiskCache(memory, table, channels) if len(memory) == offset + height * width * channels else None

    def pixels(self, number: int) -> NDArray[np.uint8]:
        """(H, W, C) of one image."""
        offset, height, width = self.table[number].tolist()
        flat = self.memory[offset : offset + height * width * self.channels]
        return np.asarray(flat).reshape(height, width, self.channels)


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Some files of a store, seen through a view: behaves like a uint8 tensor (N, C, S, S) that is not there yet.

    `images[5]` is one image, `images[indices]` a batch; both decode. `subset` and `viewed` decode nothing.
    """

    store: FileStore = field(repr=False)
    view: View
    numbers: NDArray[np.int64] = field(repr=False)

    @classmethod
    def all_of(cls, store: FileStore, view: View) -> "ImageFiles":
        """Every file of a store."""
        return cls(store, view, np.arange(len(store.files)))

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> torch.Size:
        """(N, C, S, S)."""
        return torch.Size((len(self), self.store.channels, self.view.size, self.view.size))

    @property
    def dtype(self) -> torch.dtype:
        """torch.uint8."""
        return torch.uint8

    @property
    def files(self) -> tuple[Path, ...]:
        """The path of each image."""
        return tuple(self.store.files[number] for number in self.numbers)

    def fingerprint(self) -> str:
        """The sha256 of file names, file sizes, boxes, view and decoding: stands for the pixels, which are not read."""
        digest = hashlib.sha256(f"{tuple(self.shape)} {self.view} {self.store.decoding}\n".encode())
        for number in self.numbers.tolist():
            store = self.store
            digest.update(f"{store.name(number)} {store.bytes_of_files[number]} {store.box(number)}\n".encode())
        return digest.hexdigest()

    def subset(self, indices: Tensor) -> "ImageFiles":
        """The images at these indices, still in their files."""
        return ImageFiles(self.store, self.view, self.numbers[indices.numpy()])

    def viewed(self, view: View) -> "ImageFiles":
        """The same files through another view."""
        return ImageFiles(self.store, view, self.numbers)

    def __getitem__(self, indices: int | slice | Tensor) -> Tensor:
        """Decode: an int gives (C, S, S), a slice or int64 tensor (B, C, S, S)."""
        if isinstance(indices, int):
            return channels_first(self.look(indices, None).copy())
        if isinstance(indices, slice):
            indices = torch.arange(len(self))[indices]
        chosen = indices.tolist()
        batch = np.empty((len(chosen), self.view.size, self.view.size, self.store.channels), dtype=np.uint8)
        for position, pixels in enumerate(in_threads(lambda index: self.look(index, None), chosen)):
            batch[position] = pixels
        return channels_first(batch)

    def look(self, index: int, draws: Draws | None) -> NDArray[np.uint8]:
        """One image (S, S, C); a random view takes its random numbers from `draws`."""
        return self.view.finish(self.store.resized(int(self.numbers[index]), self.view.resize), draws)


def channels_first(pixels: NDArray[np.uint8]) -> Tensor:
    """(…, S, S, C) as a tensor (…, C, S, S) that shares the memory: PyTorch's channels-last format, and no copying."""
    return torch.from_numpy(pixels).movedim(-1, -3)


def damaged_files(store: FileStore) -> dict[int, str]:
    """Which files cannot be read and why: {number: 'path (reason)'}.

    Every file is decoded once, JPEGs at an eighth of their size. The outcome is remembered under `cache_directory()`
    for as long as no file's size or time changes.
    """
    for number, file in enumerate(store.files):
        if not file.is_file():
            raise EquimetricError(
                f"the image {str(file)!r} (number {number + 1:,} of {len(store.files):,}) is not there; "
                "check that the archive was unpacked completely"
            )
    smallest = Resize(1, "square")
    record = cache_directory() / "checked" / f"{store.fingerprint(smallest)}.json"
    known = _read_check(record)
    if known is not None:
        return known

    def reason(number: int) -> str:
        outcome = store.attempt(number, smallest, "fast")
        return outcome if isinstance(outcome, str) else ""

    reasons = in_threads(reason, range(len(store.files)), description="Checking images")
    found = {number: why for number, why in enumerate(reasons) if why}
    # where this cannot be written the next load checks again, nothing else
    with contextlib.suppress(OSError):
        write_atomically(record, json.dumps(found))
    return found


def _read_check(record: Path) -> dict[int, str] | None:
    try:
        return {int(number): reason for number, reason in json.loads(record.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError):
        return None
