"""Images that stay in their files until they are needed.

`ImageFiles` takes the place of the tensor of a data set in memory: `images[indices]` gives uint8 (B, C, S, S). Files
are decoded in threads, through a view (`equimetric.data.views`); a `FileStore` may cache the resized images.
"""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.data.decoding import map_in_threads
from equimetric.data.file_store import FileStore
from equimetric.data.image_conditions import ImageCondition
from equimetric.data.views import RandomStream, View

__all__ = ["ImageFiles", "channels_first"]


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Some files of a store through a view: behaves like a uint8 tensor (N, C, S, S) that is decoded when indexed.

    `images[5]` is one image, `images[indices]` a batch; both decode. `subset`, `with_view` and `with_condition` decode
    nothing. With a condition every image is changed after the view.
    """

    store: FileStore = field(repr=False)
    view: View
    file_indices: NDArray[np.int64] = field(repr=False)
    condition: ImageCondition | None = None

    @classmethod
    def all_of(cls, store: FileStore, view: View) -> "ImageFiles":
        """Every file of a store."""
        return cls(store, view, np.arange(len(store.files)))

    def __len__(self) -> int:
        return len(self.file_indices)

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
        return tuple(self.store.files[index] for index in self.file_indices)

    def fingerprint(self) -> str:
        """The sha256 of file contents, boxes, channels, decoding, view and condition; nothing is decoded."""
        store = self.store
        digest = hashlib.sha256(f"{tuple(self.shape)} {self.view} {store.decoding}\n".encode())
        if self.condition is not None:
            digest.update(f"{self.condition.fingerprint}\n".encode())
        for index in self.file_indices.tolist():
            digest.update(f"{store.hashes[index]} {store.box(index)}\n".encode())
        return digest.hexdigest()

    def subset(self, indices: Tensor) -> "ImageFiles":
        """The images at these indices, still in their files."""
        return replace(self, file_indices=self.file_indices[indices.numpy()])

    def with_view(self, view: View) -> "ImageFiles":
        """The same files through another view."""
        return replace(self, view=view)

    def with_condition(self, condition: ImageCondition) -> "ImageFiles":
        """The same files under a condition."""
        return replace(self, condition=condition)

    def __getitem__(self, indices: int | slice | Tensor) -> Tensor:
        """Decode: an int gives (C, S, S), a slice or int64 tensor (B, C, S, S)."""
        if isinstance(indices, int):
            return channels_first(self.load(indices, None).copy())
        if isinstance(indices, slice):
            indices = torch.arange(len(self))[indices]
        chosen = indices.tolist()
        batch = np.empty((len(chosen), self.view.size, self.view.size, self.store.channels), dtype=np.uint8)
        for position, pixels in enumerate(map_in_threads(lambda index: self.load(index, None), chosen)):
            batch[position] = pixels
        return channels_first(batch)

    def load(self, index: int, rng: RandomStream | None) -> NDArray[np.uint8]:
        """One image (S, S, C); a random view takes its random numbers from `rng`."""
        pixels = self.view.finish(self.store.load(int(self.file_indices[index]), self.view.resize), rng)
        return pixels if self.condition is None else self.condition(pixels)


def channels_first(pixels: NDArray[np.uint8]) -> Tensor:
    """(…, S, S, C) as a tensor (…, C, S, S) that shares the memory, in PyTorch's channels-last format."""
    return torch.from_numpy(pixels).movedim(-1, -3)
