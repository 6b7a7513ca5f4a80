"""A list of labelled image files, checked one by one and made into a data set."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import normpath
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.data.damaged_files import damaged_files
from equimetric.data.dataset import Dataset, Images
from equimetric.data.decoding import Box, Decoding, map_in_threads
from equimetric.data.exclusions import Damaged, report_damaged, report_skipped, report_small_classes
from equimetric.data.file_store import CacheKind, FileStore
from equimetric.data.image_files import ImageFiles
from equimetric.data.views import View, fit_view
from equimetric.errors import EquimetricError, quote

__all__ = ["FileList", "first_outside", "require_count"]


@dataclass(frozen=True, eq=False)
class FileList:
    """Image files with the name of each one's class.

    `class_order` lists the class names in the order of their labels; names without a file are left out. `parts` is the
    official split (see `Dataset`), `boxes` crops each image to its bounding box. `class_attributes` maps each attribute
    to its values by class name, `sample_attributes` to those of the files. `skipped` lists files among the images that
    are not read, as 'path (reason)'.
    """

    name: str
    root: Path
    files: Sequence[Path]
    classes: Sequence[str]
    class_order: Sequence[str]
    parts: Sequence[str] | None = None
    boxes: Sequence[Box | None] | None = None
    class_attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sample_attributes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    skipped: Sequence[str] = ()

    def dataset(
        self,
        *,
        size: int,
        channels: int,
        damaged: Damaged,
        min_images: int = 1,
        cache: CacheKind = "none",
        decoding: Decoding = "exact",
        in_memory: bool = False,
    ) -> Dataset:
        """Check every file and build the data set: images in memory, or in their files until they are needed.

        By default an image is resized so that its shorter side has `size` pixels, and cropped at the centre. Classes
        with fewer than `min_images` readable images are left out. What is left out is said in warnings.
        """
        if damaged not in ("refuse", "skip"):
            raise EquimetricError(f"damaged must be 'refuse' or 'skip', not {quote(damaged)}")
        require_count("min_images", min_images)
        view = fit_view(size)
        store = self._store(channels, cache, decoding)
        pixels, unreadable = _decode_all(store, view) if in_memory else (None, damaged_files(store, missing=damaged))
        report_skipped(self.skipped)
        report_damaged(tuple(unreadable.values()), damaged)
        keep = [index for index in range(len(self.files)) if index not in unreadable]
        if not keep:
            raise EquimetricError(f"none of the {len(self.files)} image files of {self.name!r} can be read")
        small = self._small_classes(keep, min_images)
        keep = [index for index in keep if self.classes[index] not in small]
        if not keep:
            raise EquimetricError(f"no class of {self.name!r} has min_images = {min_images} images; choose a lower one")
        report_small_classes(small, min_images)
        readable = self
        if len(keep) < len(self.files):
            readable = self._select(keep)
            store = readable._store(channels, cache, decoding)
            pixels = None if pixels is None else pixels[keep]
        loaded = readable._assemble(
            ImageFiles.all_of(store, view) if pixels is None else torch.from_numpy(pixels), store
        )
        return replace(loaded, unreadable=tuple(unreadable.values()), skipped=tuple(self.skipped), small_classes=small)

    def _small_classes(self, indices: Sequence[int], min_images: int) -> dict[str, int]:
        """Name → images of the classes with fewer than `min_images` of these files; with 1 none are looked for."""
        if min_images == 1:
            return {}
        images = Counter(self.classes[index] for index in indices)
        return {name: images[name] for name in self.class_order if images[name] < min_images}

    def _store(self, channels: int, cache: CacheKind, decoding: Decoding) -> FileStore:
        return FileStore(
            self.files, root=self.root, boxes=self.boxes, channels=channels, cache=cache, decoding=decoding
        )

    def _select(self, indices: Sequence[int]) -> "FileList":
        """The list reduced to these files."""
        return replace(
            self,
            files=[self.files[index] for index in indices],
            classes=[self.classes[index] for index in indices],
            parts=None if self.parts is None else [self.parts[index] for index in indices],
            boxes=None if self.boxes is None else [self.boxes[index] for index in indices],
            sample_attributes={
                key: [values[index] for index in indices] for key, values in self.sample_attributes.items()
            },
        )

    def _assemble(self, images: Images, store: FileStore) -> Dataset:
        occurring = set(self.classes)
        class_names = tuple(name for name in self.class_order if name in occurring)
        label_of = {name: label for label, name in enumerate(class_names)}
        labels = torch.tensor([label_of[name] for name in self.classes])
        attributes = {"file": tuple(store.name(index) for index in range(len(self.files)))}
        attributes |= {key: tuple(values) for key, values in self.sample_attributes.items()}
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
        )


def _decode_all(store: FileStore, view: View) -> tuple[NDArray[np.uint8], dict[int, str]]:
    """All images (N, C, S, S), and why some cannot be read; those are left black."""
    images = np.zeros((len(store.files), store.channels, view.size, view.size), dtype=np.uint8)

    def attempt(index: int) -> str:
        outcome = store.attempt(index, view.resize)
        if isinstance(outcome, str):
            return f"{store.files[index]} ({outcome})"
        images[index] = view.finish(outcome, None).transpose(2, 0, 1)
        return ""

    reasons = map_in_threads(attempt, range(len(store.files)), description="Reading images")
    return images, {index: reason for index, reason in enumerate(reasons) if reason}


def require_count(option: str, value: object) -> None:
    """Raise an error unless an option is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EquimetricError(f"{option} must be a whole number, at least 1, not {quote(value)}")


def first_outside(root: Path, files: Sequence[Path]) -> int | None:
    """The index of the first file whose path leads out of `root`; links inside are not followed."""
    prefix = normpath(root.absolute()).rstrip("/") + "/"
    return next((index for index, file in enumerate(files) if not normpath(file.absolute()).startswith(prefix)), None)
