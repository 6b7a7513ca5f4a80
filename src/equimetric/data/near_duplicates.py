"""Images that occur, perhaps slightly changed, twice: in two parts of a split, or anywhere in a data set."""

import hashlib
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

__all__ = ["MAX_BITS", "MAX_DIFFERENCE", "NearDuplicate", "grey_thumbnails", "near_duplicates"]

MAX_BITS, MAX_DIFFERENCE = 6, 8.0
"""Largest differences of near-duplicates: bits of a 64-bit hash, and mean grey level out of 255."""

THUMBNAIL = 32
ROW_CHUNK_SIZE, COLUMN_CHUNK_SIZE = 256, 8192
PAIR_CHUNK_SIZE = 8192
"""Blocks of hashes and of thumbnails that stay in a processor's cache."""


@dataclass(frozen=True)
class NearDuplicate:
    """Two images of two parts, or of two classes, by their indices in the data set.

    `bits` of their 64-bit hashes differ; `difference` is the mean difference of their grey thumbnails, out of 255;
    `exact` is True where the files, or the pixels of images in memory, are equal byte for byte.
    """

    first: int
    second: int
    parts: tuple[str, str]
    bits: int
    difference: float
    exact: bool

    def names(self, dataset: Dataset) -> tuple[str, str]:
        """Both files, relative to the root of the data set, or the indices of images without files."""
        files = dataset.sample_attributes.get("file")
        first, second = (f"image {index}" if files is None else files[index] for index in (self.first, self.second))
        return first, second

    def describe(self, dataset: Dataset) -> str:
        """'train a.jpg ~ test b.jpg: 2 of 64 bits and 1.3 of 255 apart'."""
        distance = "equal" if self.exact else f"{self.bits} of 64 bits and {self.difference:.1f} of 255 apart"
        first, second = self.names(dataset)
        return f"{self.parts[0]} {first} ~ {self.parts[1]} {second}: {distance}"


def near_duplicates(
    dataset: Dataset,
    split: Split | None = None,
    *,
    most_bits: int = MAX_BITS,
    most_difference: float = MAX_DIFFERENCE,
    limit: int = 10_000,
    thumbnails: Tensor | None = None,
) -> list[NearDuplicate]:
    """Images of one part that resemble an image of another, the most similar first, at most `limit` of them.

    Without a split, all images are compared with each other, and `parts` are the names of their classes.

    The difference hash of an image has one bit for each of 8×8 cells of its grey thumbnail: is the next cell to the
    right brighter? Pairs whose hashes differ in at most `most_bits` bits are compared by their 32×32 thumbnails. Both
    survive rescaling, recompression and small changes of brightness, not mirroring or cropping. Memory is bounded by
    the thumbnails, 1 kB per image, which may be given where several splits are looked at; two parts with more than
    `limit` pairs are not searched to their end.
    """
    if len(dataset.images.shape) != 4:
        raise EquimetricError(f"data set {dataset.name!r} holds feature vectors; near-duplicates are found in images")
    if not 0 <= most_bits <= 64:
        raise EquimetricError(f"most_bits must be from 0 to 64, the bits of a hash, not {most_bits}")
    thumbnails = grey_thumbnails(dataset.images) if thumbnails is None else thumbnails
    hashes, flat = difference_hashes(thumbnails), thumbnails.flatten(1).numpy()
    all_rows = np.arange(len(dataset))
    pairs_of_parts = [(all_rows, all_rows)]
    if split is not None:
        pairs_of_parts = [(left.numpy(), right.numpy()) for left, right in combinations(split.parts().values(), 2)]
    matches = [
        _match_parts(left, right, flat, hashes, most_bits, most_difference, limit) for left, right in pairs_of_parts
    ]
    similar = _most_similar(np.concatenate(matches), limit)
    digests = _digests(dataset.images, {int(index) for index in similar[:, :2].ravel()})
    part_of = _part_names(dataset, split)
    return [
        NearDuplicate(
            first, second, (part_of[first], part_of[second]), bits, difference, digests[first] == digests[second]
        )
        for (first, second, bits), difference in zip(
            similar[:, :3].astype(int).tolist(), similar[:, 3].tolist(), strict=True
        )
    ]


def _part_names(dataset: Dataset, split: Split | None) -> dict[int, str]:
    """The part of every image that is in one, by its index; without a split the name of its class."""
    if split is None:
        return {index: dataset.class_names[label] for index, label in enumerate(dataset.labels.tolist())}
    return {index: part for part, rows in split.parts().items() for index in rows.tolist()}


def grey_thumbnails(images: Images) -> Tensor:
    """(N, 32, 32) uint8 of the whole image, aspect ratio not kept; files are decoded at a small scale."""
    resize = Resize(THUMBNAIL, "square")
    view = View(resize)

    def thumbnail(index: int) -> NDArray[np.uint8]:
        if isinstance(images, ImageFiles):
            pixels = view.finish(images.store.decode(int(images.file_indices[index]), resize, "fast"), None)
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


def _match_parts(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    thumbnails: NDArray[np.uint8],
    hashes: NDArray[np.uint64],
    most_bits: int,
    most_difference: float,
    limit: int,
) -> NDArray[np.float64]:
    """(P, 4) both rows, bits and difference of the pairs of two parts that are alike, block by block.

    Of a set that is compared with itself every pair counts once.
    """
    same_set, matches = first is second, np.empty((0, 4))
    for start in range(0, len(first), ROW_CHUNK_SIZE):
        rows = first[start : start + ROW_CHUNK_SIZE, None]
        for column in range(0, len(second), COLUMN_CHUNK_SIZE):
            columns = second[None, column : column + COLUMN_CHUNK_SIZE]
            bits = np.bitwise_count(hashes[rows] ^ hashes[columns])
            candidates = np.nonzero((bits <= most_bits) & (rows < columns) if same_set else bits <= most_bits)
            pairs = np.column_stack([rows[candidates[0], 0], columns[0, candidates[1]]])
            difference = _mean_differences(thumbnails, pairs)
            similar = difference <= most_difference
            rows_bits_difference = np.column_stack([pairs, bits[candidates], difference])[similar]
            matches = _most_similar(np.concatenate([matches, rows_bits_difference]), limit)
        if len(matches) >= limit:  # a data set of nearly equal images would take long
            break
    return matches


def _mean_differences(thumbnails: NDArray[np.uint8], pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """(P,) mean absolute differences of the thumbnails (N, 1024) of pairs (P, 2)."""
    differences = np.empty(len(pairs))
    for start in range(0, len(pairs), PAIR_CHUNK_SIZE):
        left, right = (thumbnails[rows].astype(np.int16) for rows in pairs[start : start + PAIR_CHUNK_SIZE].T)
        differences[start : start + PAIR_CHUNK_SIZE] = np.abs(left - right).mean(axis=1)
    return differences


def _most_similar(pairs: NDArray[np.float64], limit: int) -> NDArray[np.float64]:
    """At most `limit` of the described pairs: by difference, then bits, then rows."""
    first, second, bits, difference = pairs[:, :4].T
    return pairs[np.lexsort((second, first, bits, difference))[:limit]]


def _digests(images: Images, indices: set[int]) -> dict[int, str]:
    if isinstance(images, ImageFiles):
        return {index: images.store.hashes[images.file_indices[index]] for index in indices}
    return {index: hashlib.sha256(images[index].contiguous().numpy().data).hexdigest() for index in indices}
