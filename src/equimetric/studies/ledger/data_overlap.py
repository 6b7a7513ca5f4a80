"""The parts of the data: no class and no image in two of them."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from equimetric.checksums import json_document, read_json
from equimetric.data import list_first, near_duplicates
from equimetric.data.near_duplicates import MAX_BITS, MAX_DIFFERENCE, grey_thumbnails
from equimetric.errors import DamagedFileError
from equimetric.files import cache_directory, write_atomically
from equimetric.runs.data import RunData
from equimetric.studies.ledger.record import LedgerEntry

__all__ = ["SharedImages", "check_data", "find_shared_images"]

SEARCH_VERSION = 1
"""Raised whenever the same images give other pairs, so that older searches are not used."""

MAX_DUPLICATE_PAIRS = 1000
"""Pairs at which a search ends: far more than a fair comparison has."""

EXAMPLES_SHOWN = 3


class SharedImages(BaseModel):
    """Images, or nearly equal ones, in two parts.

    Attributes:
        pairs: number of pairs, at most `MAX_DUPLICATE_PAIRS`.
        equal: number of pairs that are equal byte for byte.
        examples: the most similar ones, in words.
        threshold: by how much near-duplicates differ at most, in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pairs: int
    equal: int
    examples: tuple[str, ...]
    threshold: str


def check_data(folds: Sequence[RunData]) -> list[LedgerEntry]:
    """Whether the parts of every fold share neither a class nor an image; results are cached."""
    return [check_classes(folds), check_images(folds)]


def check_classes(folds: Sequence[RunData]) -> LedgerEntry:
    """Whether no class is in two parts of a fold."""
    for data in folds:
        labels = {part: torch.unique(data.dataset.labels[rows]) for part, rows in data.split.parts().items()}
        for (part, labels_a), (other_part, labels_b) in combinations(labels.items(), 2):
            shared = labels_a[torch.isin(labels_a, labels_b)].tolist()
            if shared:
                names = list_first([data.dataset.class_names[label] for label in shared])
                finding = f"{len(shared):,} classes are in {part} and in {other_part}: {names}"
                return LedgerEntry(factor="classes", status="violated", finding=finding)
    counts = (f"{len(labels[part]):,} {part}" for part in labels)
    return LedgerEntry(factor="classes", status="met", finding=f"{', '.join(counts)} classes, none in two parts")


def check_images(folds: Sequence[RunData]) -> LedgerEntry:
    """Whether no image, or a nearly equal one, is in two parts of a fold."""
    thumbnails: dict[str, Tensor] = {}
    worst = max((find_shared_images(data, thumbnails) for data in folds), key=lambda shared: shared.pairs)
    if not worst.pairs:
        finding = f"none among {len(folds[0].dataset):,} images ({worst.threshold})"
        return LedgerEntry(factor="near_duplicates", status="met", finding=finding)
    count = f"{worst.pairs:,}{' or more' if worst.pairs >= MAX_DUPLICATE_PAIRS else ''}"
    if folds[0].dataset.lookalike_reason and not worst.equal:
        finding = f"none is equal; {count} pairs are similar ({worst.threshold}): {folds[0].dataset.lookalike_reason}"
        return LedgerEntry(factor="near_duplicates", status="met", finding=finding)
    equal = f", {worst.equal:,} of them equal" if worst.equal else ""
    finding = f"{count} pairs in two parts{equal} ({worst.threshold}), such as {'; '.join(worst.examples)}"
    return LedgerEntry(factor="near_duplicates", status="violated", finding=finding)


def find_shared_images(data: RunData, thumbnails: dict[str, Tensor] | None = None) -> SharedImages:
    """Images in two parts; cached under `cache_directory()` by the content of the data and the split.

    `thumbnails` by fingerprint are filled, so that several splits of one data set decode its images once.
    """
    file = cache_directory() / "near_duplicates" / f"{search_key(data)}.json"
    cached = load_cached(file)
    if cached is not None:
        return cached
    shared = search_vectors(data) if data.vectors else search_images(data, {} if thumbnails is None else thumbnails)
    # A cache that cannot be written costs time, nothing else.
    with suppress(OSError):
        write_atomically(file, json_document(shared.model_dump(mode="json")))
    return shared


def search_images(data: RunData, thumbnails: dict[str, Tensor]) -> SharedImages:
    """Near-duplicates by the check of `equimetric datasets check`, with its thresholds."""
    dataset = data.dataset
    if dataset.fingerprint not in thumbnails:
        thumbnails.clear()
        thumbnails[dataset.fingerprint] = grey_thumbnails(dataset.images)
    pairs = near_duplicates(dataset, data.split, limit=MAX_DUPLICATE_PAIRS, thumbnails=thumbnails[dataset.fingerprint])
    return SharedImages(
        pairs=len(pairs),
        equal=sum(pair.exact for pair in pairs),
        examples=tuple(pair.describe(dataset) for pair in pairs[:EXAMPLES_SHOWN]),
        threshold=f"at most {MAX_BITS} of 64 bits and {MAX_DIFFERENCE:g} of 255 apart",
    )


def search_vectors(data: RunData) -> SharedImages:
    """Equal feature vectors: nearly equal ones may well be of different images."""
    row_by_content: dict[bytes, tuple[str, int]] = {}
    examples = []
    vectors = data.dataset.images[:]
    for part, rows in data.split.parts().items():
        for row in rows.tolist():
            content = hashlib.sha256(vectors[row].numpy().tobytes()).digest()
            first_part, first_row = row_by_content.setdefault(content, (part, row))
            if first_part != part:
                examples.append(f"{first_part} vector {first_row} = {part} vector {row}")
    return SharedImages(
        pairs=min(len(examples), MAX_DUPLICATE_PAIRS),
        equal=min(len(examples), MAX_DUPLICATE_PAIRS),
        examples=tuple(examples[:EXAMPLES_SHOWN]),
        threshold="equal feature vectors",
    )


def search_key(data: RunData) -> str:
    """Hash of everything that determines the result."""
    digest = hashlib.sha256(
        f"{SEARCH_VERSION} {MAX_BITS} {MAX_DIFFERENCE} {MAX_DUPLICATE_PAIRS} {data.fingerprint}".encode()
    )
    for part, rows in data.split.parts().items():
        digest.update(part.encode() + rows.contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


def load_cached(file: Path) -> SharedImages | None:
    """The cached result; None where there is none, or where it is damaged, with a warning."""
    if not file.exists():
        return None
    try:
        return SharedImages.model_validate(read_json(file, dict, ""))
    except (DamagedFileError, ValidationError):
        warnings.warn(f"{file} is damaged; the images of all parts are compared again", stacklevel=2)
        return None
