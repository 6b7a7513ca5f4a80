"""Image files with optional bounding boxes: decoding, caches, and the identity of their content."""

import hashlib
import threading
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equimetric.data.decoding import Box, Decoding, decode, map_in_threads, open_image
from equimetric.data.image_caches import DiskCache, MemoryCache
from equimetric.data.views import Resize, pillow_image
from equimetric.errors import EquimetricError, quote
from equimetric.file_hashes import Stamp, hash_files, read_stamp
from equimetric.files import cache_directory
from equimetric.progress import track

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

__all__ = ["CacheKind", "FileStore"]

CacheKind: TypeAlias = Literal["none", "memory", "disk"]

MEMORY_CACHE_BYTES = 2 * 2**30
CACHE_VERSION = 3  # raise it whenever decoding or resizing gives other pixels, so that older caches are not used
HASH_CHUNK_SIZE = 1000
UNREADABLE = "unreadable"


class FileStore:
    """Image files with optional bounding boxes, decoded one by one; shared by all data sets of the same file list.

    root     the folder that file names are relative to
    cache    "none":   decode at every access
             "memory": keep resized images until `cache_bytes` are used; later ones are decoded at every access
             "disk":   at the first access, decode all files into one memory-mapped file under `cache_directory()`
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
        if channels not in (1, 3) or isinstance(channels, bool):
            raise EquimetricError(f"channels must be 3 (colour) or 1 (grey), not {quote(channels)}")
        if cache not in ("none", "memory", "disk"):
            raise EquimetricError(f"cache must be 'none', 'memory' or 'disk', not {quote(cache)}")
        if decoding not in ("exact", "fast"):
            raise EquimetricError(f"decoding must be 'exact' or 'fast', not {quote(decoding)}")
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
        self.memory = MemoryCache(cache_bytes)
        self.disk: dict[Resize | None, DiskCache] = {}
        self.lock = threading.Lock()
        self.stamps: tuple[Stamp | None, ...] | None = None

    def __getstate__(self) -> dict[str, object]:
        """State that another process needs to read the files itself; caches in memory are left out."""
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

    def load(self, index: int, resize: Resize | None) -> "PillowImage":
        """File `index`, decoded and resized; from the cache where there is one."""
        if self.cache == "none":
            return self.decode(index, resize)
        if self.cache == "disk":
            return pillow_image(self._read_disk_cache(index, resize))
        pixels = self.memory.images.get((index, resize))
        if pixels is None:
            pixels = self._pixels(index, resize)
            self.memory.add((index, resize), pixels)
        return pillow_image(pixels)

    def decode(self, index: int, resize: Resize | None, decoding: Decoding | None = None) -> "PillowImage":
        """File `index`, decoded and resized without the cache; `decoding` overrides the store's own."""
        outcome = self.attempt(index, resize, decoding)
        if isinstance(outcome, str):
            raise EquimetricError(
                f"an image cannot be read: {self.files[index]} ({outcome}); remove it, or load with damaged='skip'"
            )
        return outcome

    def attempt(self, index: int, resize: Resize | None, decoding: Decoding | None = None) -> "PillowImage | str":
        """File `index`, decoded and resized without the cache, or the reason why it cannot be."""
        file = self.files[index]
        try:
            return decode(
                file,
                channels=self.channels,
                resize=resize,
                box=self.box(index),
                decoding=decoding or self.decoding,
            )
        except Exception as error:  # a damaged file can raise almost anything from inside a decoder
            return str(error).replace(str(file), file.name) or type(error).__name__

    def size(self, index: int) -> tuple[float, float]:
        """Width and height of file `index` by its header, or of its bounding box."""
        box = self.box(index)
        if box is not None:
            return box[2:]
        with open_image(self.files[index]) as opened:
            return opened.size

    def box(self, index: int) -> Box | None:
        """The bounding box of file `index`, if there are any."""
        return None if self.boxes is None else self.boxes[index]

    def name(self, index: int) -> str:
        """File `index` relative to `root`."""
        file = self.files[index]
        relative = self.root is not None and file.is_relative_to(self.root)
        return (file.relative_to(self.root) if self.root is not None and relative else file).as_posix()

    @cached_property
    def hashes(self) -> tuple[str, ...]:
        """Content hash of every file, taken once (see `forget_hashes`); `UNREADABLE` where there is none."""
        self.stamps = tuple(map(read_stamp, self.files))
        blocks = [self.files[start : start + HASH_CHUNK_SIZE] for start in range(0, len(self.files), HASH_CHUNK_SIZE)]
        hashed = (hash_files(block) for block in blocks)
        tracked = track(hashed, "Hashing files", total=len(blocks)) if len(blocks) > 1 else hashed
        return tuple(digest or UNREADABLE for block in tracked for digest in block)

    def is_unchanged(self) -> bool:
        """Whether no file has changed since the hashes were taken, by sizes and times."""
        return self.stamps is not None and self.stamps == tuple(map(read_stamp, self.files))

    def forget_hashes(self) -> None:
        """Take the hashes again when they are next needed, since files may have changed."""
        self.__dict__.pop("hashes", None)

    def fingerprint(self, resize: Resize | None) -> str:
        """Hash of everything that decoded pixels depend on: content of the files, boxes, decoding and resizing."""
        from PIL import __version__ as pillow_version

        digest = hashlib.sha256(f"{CACHE_VERSION} {pillow_version} {self.channels} {resize} {self.decoding}\n".encode())
        for index, content in enumerate(self.hashes):
            digest.update(f"{content} {self.box(index)}\n".encode())
        return digest.hexdigest()[:32]

    def _pixels(self, index: int, resize: Resize | None) -> NDArray[np.uint8]:
        image = self.decode(index, resize)
        return np.asarray(image, dtype=np.uint8).reshape(image.height, image.width, self.channels)

    def _read_disk_cache(self, index: int, resize: Resize | None) -> NDArray[np.uint8]:
        cache = self._disk_cache(resize)
        pixels = cache.read(index)
        if pixels is None:
            warnings.warn(f"{cache.folder} is damaged; the images are decoded and cached again", stacklevel=2)
            pixels = self._disk_cache(resize, damaged=cache).read(index)
            assert pixels is not None
        return pixels

    def _disk_cache(self, resize: Resize | None, damaged: DiskCache | None = None) -> DiskCache:
        """The cache, written at the first access, or in place of a damaged one."""
        with self.lock:
            if self.disk.get(resize) is damaged:
                folder = cache_directory() / "images" / self.fingerprint(resize)
                indices = range(len(self.files))
                images = map_in_threads(
                    lambda index: self._pixels(index, resize), indices, description="Decoding images"
                )
                self.disk[resize] = DiskCache.open_or_write(folder, images, self.channels, damaged)
            return self.disk[resize]
