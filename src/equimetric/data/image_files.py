"""Images that stay in their files until they are needed.

`ImageFiles` takes the place of the tensor of a data set in memory: `images[indices]` gives uint8 (B, C, S, S). Files
are decoded in threads, through a view (`equimetric.data.views`); a `FileStore` may cache the resized images.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.data.decoding import map_in_threads
from equimetric.data.file_store import FileStore
from equimetric.data.views import Draws, View

__all__ = ["ImageFiles", "channels_first"]


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Some files of a store through a view: behaves like a uint8 tensor (N, C, S, S) that is decoded when indexed.

    `images[5]` is one image, `images[indices]` a batch; both decode. `subset` and `with_view` decode nothing.
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
        """The sha256 of file contents, boxes, channels, decoding and view; nothing is decoded."""
        store = self.store
        digest = hashlib.sha256(f"{tuple(self.shape)} {self.view} {store.decoding}\n".encode())
        for number in self.numbers.tolist():
            digest.update(f"{store.hashes[number]} {store.box(number)}\n".encode())
        return digest.hexdigest()

    def subset(self, indices: Tensor) -> "ImageFiles":
        """The images at these indices, still in their files."""
        return ImageFiles(self.store, self.view, self.numbers[indices.numpy()])

    def with_view(self, view: View) -> "ImageFiles":
        """The same files through another view."""
        return ImageFiles(self.store, view, self.numbers)

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

    def load(self, index: int, draws: Draws | None) -> NDArray[np.uint8]:
        """One image (S, S, C); a random view takes its random numbers from `draws`."""
        return self.view.finish(self.store.load(int(self.numbers[index]), self.view.resize), draws)


def channels_first(pixels: NDArray[np.uint8]) -> Tensor:
    """(…, S, S, C) as a tensor (…, C, S, S) that shares the memory, in PyTorch's channels-last format."""
    return torch.from_numpy(pixels).movedim(-1, -3)
