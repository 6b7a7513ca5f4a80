"""Images that occur, perhaps slightly changed, in two parts of a split: test images must not be in training."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from equimetric.data.dataset import Dataset, Images
from equimetric.data.decoding import map_in_threads
from equimetric.data.image_files import ImageFiles
from equimetric.data.splits import Split
from equimetric.data.views import Resize, View, view_tensor
from equimetric.errors import EquimetricError

__all__ = ["NearDuplicate", "near_duplicates"]

THUMBNAIL = 32
ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class NearDuplicate:
    """Two images of two parts, by their indices in the data set.

    `bits` of their 64-bit hashes differ; `difference` is the mean difference of their grey thumbnails, out of 255;
    `exact` is True where the files, or the pixels of images in memory, are equal byte for byte.
    """

    first: int
    second: int
    parts: tuple[str, str]
    bits: int
    difference: float
    exact: bool


def near_duplicates(
    dataset: Dataset, split: Split, *, most_bits: int = 6, most_difference: float = 8.0, limit: int = 10_000
) -> list[NearDuplicate]:
    """Images of one part that resemble an image of another, the most similar first, at most `limit` of them.

    The difference hash of an image has one bit for each of 8×8 cells of its grey thumbnail: is the next cell to the
    right brighter? Pairs whose hashes differ in at most `most_bits` bits are compared by their 32×32 thumbnails. Both
    survive rescaling, recompression and small changes of brightness, not mirroring or cropping.
    """
    if len(dataset.images.shape) != 4:
        raise EquimetricError(f"data set {dataset.name!r} holds feature vectors; near-duplicates are found in images")
    if not 0 <= most_bits <= 64:
        raise EquimetricError(f"most_bits must be from 0 to 64, the bits of a hash, not {most_bits}")
    thumbnails = grey_thumbnails(dataset.images)
    hashes = difference_hashes(thumbnails)
    found = sorted(
        _alike(split.parts(), thumbnails.float().flatten(1).numpy(), hashes, most_bits, most_difference, limit),
        key=lambda pair: (pair.difference, pair.bits, pair.first, pair.second),
    )[:limit]
    digests = _digests(dataset.images, {index for pair in found for index in (pair.first, pair.second)})
    return [
        NearDuplicate(
            pair.first, pair.second, pair.parts, pair.bits, pair.difference, digests[pair.first] == digests[pair.second]
        )
        for pair in found
    ]


def grey_thumbnails(images: Images) -> Tensor:
    """(N, 32, 32) uint8 of the whole image, aspect ratio not kept; files are decoded at a small scale."""
    resize = Resize(THUMBNAIL, "square")
    view = View(resize)

    def thumbnail(index: int) -> NDArray[np.uint8]:
        if isinstance(images, ImageFiles):
            pixels = view.finish(images.store.decode(int(images.numbers[index]), resize, "fast"), None)
        else:
            pixels = view_tensor(images[index], view, None)
        grey: NDArray[np.uint8] = np.rint(pixels.mean(axis=2)).astype(np.uint8)
        return grey

    return torch.from_numpy(
        np.stack(list(map_in_threads(thumbnail, range(len(images)), description="Comparing images")))
    )


def difference_hashes(thumbnails: Tensor) -> NDArray[np.uint64]:
    """(N,) 64-bit hashes: whether each of 8×9 mean brightnesses is darker than its right neighbour."""
    coarse = F.adaptive_avg_pool2d(thumbnails.float(), (8, 9))
    brighter = (coarse[:, :, 1:] > coarse[:, :, :-1]).flatten(1).numpy()
    return np.packbits(brighter, axis=1).view(np.uint64).squeeze(1)


def _alike(
    parts: Mapping[str, Tensor],
    thumbnails: NDArray[np.float32],
    hashes: NDArray[np.uint64],
    most_bits: int,
    most_difference: float,
    limit: int,
) -> Iterator[NearDuplicate]:
    for (first_part, first), (second_part, second) in combinations(parts.items(), 2):
        left, right = first.numpy(), second.numpy()
        given = 0
        for start in range(0, len(left), ROWS_AT_ONCE):
            rows = left[start : start + ROWS_AT_ONCE]
            bits = np.bitwise_count(hashes[rows, None] ^ hashes[None, right])
            for row, column in np.argwhere(bits <= most_bits):
                one, other = int(rows[row]), int(right[column])
                difference = float(np.abs(thumbnails[one] - thumbnails[other]).mean())
                if difference <= most_difference:
                    yield NearDuplicate(
                        one, other, (first_part, second_part), int(bits[row, column]), difference, False
                    )
                    given += 1
            if given >= limit:  # a data set of nearly equal images would fill the memory
                break


def _digests(images: Images, indices: set[int]) -> dict[int, str]:
    if isinstance(images, ImageFiles):
        return {index: images.store.hashes[images.numbers[index]] for index in indices}
    return {index: hashlib.sha256(images[index].contiguous().numpy().data).hexdigest() for index in indices}
