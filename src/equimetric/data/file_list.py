"""A list of labelled image files, checked one by one and made into a data set."""

import contextlib
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.data.damaged_files import damaged_files
from equimetric.data.dataset import Dataset, Images
from equimetric.data.decoding import Box, Decoding, map_in_threads
from equimetric.data.file_store import CacheKind, FileStore
from equimetric.data.image_files import ImageFiles
from equimetric.data.views import View, fit
from equimetric.errors import EquimetricError
from equimetric.files import cache_directory, write_atomically

__all__ = ["SUFFIXES", "Damaged", "FileList", "image_files_in"]

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"})
FILES_SHOWN = 5

Damaged: TypeAlias = Literal["refuse", "skip"]
"""What to do with image files that cannot be read: raise one error that names them, or warn and leave them out."""


@dataclass(frozen=True, eq=False)
class FileList:
    """Image files with the name of each one's class.

    `class_order` lists the class names in the order of their labels; names without a file are left out. `parts` is the
    official split (see `Dataset`), `boxes` crops each image to its bounding box. `class_attributes` maps each attribute
    to its values by class name.
    """

    name: str
    root: Path
    files: Sequence[Path]
    classes: Sequence[str]
    class_order: Sequence[str]
    parts: Sequence[str] | None = None
    boxes: Sequence[Box | None] | None = None
    class_attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def dataset(
        self,
        *,
        size: int,
        channels: int,
        damaged: Damaged,
        cache: CacheKind = "none",
        decoding: Decoding = "exact",
        in_memory: bool = False,
    ) -> Dataset:
        """Check every file and build the data set: images in memory, or in their files until they are needed.

        By default an image is resized so that its shorter side has `size` pixels, and cropped at the centre.
        """
        if damaged not in ("refuse", "skip"):
            raise EquimetricError(f"damaged must be 'refuse' or 'skip', not {damaged!r}")
        view = fit(size)
        store = self._store(channels, cache, decoding)
        if in_memory:
            pixels, unreadable = _decode_all(store, view)
        else:
            unreadable = damaged_files(store)
        if not unreadable:
            return self._assemble(torch.from_numpy(pixels) if in_memory else ImageFiles.all_of(store, view), store)
        reasons = tuple(unreadable.values())
        _report(reasons, damaged)
        readable = [number for number in range(len(self.files)) if number not in unreadable]
        if not readable:
            raise EquimetricError(f"none of the {len(self.files)} image files of {self.name!r} can be read")
        rest = self._only(readable)
        store = rest._store(channels, cache, decoding)
        return rest._assemble(
            torch.from_numpy(pixels[readable]) if in_memory else ImageFiles.all_of(store, view), store, reasons
        )

    def _store(self, channels: int, cache: CacheKind, decoding: Decoding) -> FileStore:
        return FileStore(
            self.files, root=self.root, boxes=self.boxes, channels=channels, cache=cache, decoding=decoding
        )

    def _only(self, numbers: Sequence[int]) -> "FileList":
        """The list reduced to these files."""
        return replace(
            self,
            files=[self.files[number] for number in numbers],
            classes=[self.classes[number] for number in numbers],
            parts=None if self.parts is None else [self.parts[number] for number in numbers],
            boxes=None if self.boxes is None else [self.boxes[number] for number in numbers],
        )

    def _assemble(self, images: Images, store: FileStore, unreadable: tuple[str, ...] = ()) -> Dataset:
        occurring = set(self.classes)
        class_names = tuple(name for name in self.class_order if name in occurring)
        label_of = {name: label for label, name in enumerate(class_names)}
        labels = torch.tensor([label_of[name] for name in self.classes])
        attributes = {"file": tuple(store.name(number) for number in range(len(self.files)))}
        if self.parts is not None:
            attributes["part"] = tuple(self.parts)
        return Dataset(
            name=self.name,
            images=images,
            labels=labels,
            class_names=class_names,
            class_attributes={
                key: tuple(value_of[name] for name in class_names) for key, value_of in self.class_attributes.items()
            },
            sample_attributes=attributes,
            unreadable=unreadable,
        )


def image_files_in(folder: Path) -> list[Path]:
    """The visible image files of a folder, sorted."""
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.suffix.lower() in SUFFIXES and not entry.name.startswith(".") and entry.is_file()
    )


def _decode_all(store: FileStore, view: View) -> tuple[NDArray[np.uint8], dict[int, str]]:
    """All images (N, C, S, S), and why some cannot be read; those are left black."""
    images = np.zeros((len(store.files), store.channels, view.size, view.size), dtype=np.uint8)

    def attempt(number: int) -> str:
        outcome = store.attempt(number, view.resize)
        if isinstance(outcome, str):
            return f"{store.files[number]} ({outcome})"
        images[number] = view.finish(outcome, None).transpose(2, 0, 1)
        return ""

    reasons = map_in_threads(attempt, range(len(store.files)), description="Reading images")
    return images, {number: why for number, why in enumerate(reasons) if why}


def _report(unreadable: Sequence[str], damaged: Damaged) -> None:
    """Name the files that cannot be read, in an error or, where they are skipped, in a warning."""
    shown = ", ".join(unreadable[:FILES_SHOWN])
    if len(unreadable) > FILES_SHOWN:
        shown += f" and {len(unreadable) - FILES_SHOWN} more{_write_list(unreadable)}"
    if damaged == "skip":
        warnings.warn(f"{len(unreadable)} image file(s) cannot be read and are left out: {shown}", stacklevel=2)
        return
    raise EquimetricError(
        f"{len(unreadable)} image file(s) cannot be read; remove or replace them, or leave them out with "
        f"damaged='skip': {shown}"
    )


def _write_list(unreadable: Sequence[str]) -> str:
    """Write the complete list to a file and say where; nothing where that fails."""
    text = "\n".join(unreadable) + "\n"
    file = cache_directory() / "damaged" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
    with contextlib.suppress(OSError):
        write_atomically(file, text)
        return f", all listed in {file}"
    return ""
