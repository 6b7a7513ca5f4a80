"""Printed characters as a retrieval task: one class per character, one image per typeface.

The typefaces come with matplotlib, so nothing is downloaded. The pictures are drawn once and cached.
"""

import contextlib
import hashlib
import json
import unicodedata
import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.data.dataset import Dataset
from equimetric.data.lookalikes import find_unambiguous, merge_lookalikes
from equimetric.data.registry import dataset
from equimetric.data.rendering import FACES, Pictures, face_files, render
from equimetric.errors import EquimetricError
from equimetric.files import cache_directory, write_atomically

__all__ = ["load_glyphs"]

DIGEST_BYTES = 32
"""Bytes of the sha256 at the end of a cache file."""

VERSION = 4  # raise it whenever drawing or merging changes, so that older cache files are not used


@dataset("glyphs")
def load_glyphs(*, minimum_faces: int = 14) -> Dataset:
    """Printed characters of 32×32 grey pixels in 16 typefaces, one class per character; real images, always available.

    A character is a class if at least `minimum_faces` of the 16 faces cover it; characters drawn alike are one class
    (`equimetric.data.lookalikes`). Equal images within a class are kept once, equal images of two classes are dropped,
    and so is a class with fewer than `minimum_faces` images left: box-drawing characters look the same in most faces.
    """
    if not isinstance(minimum_faces, int) or not 2 <= minimum_faces <= len(FACES):
        raise EquimetricError(f"minimum_faces must be a whole number from 2 to {len(FACES)}, not {minimum_faces!r}")
    file = _cache_file(minimum_faces)
    glyphs = _read(file)
    if glyphs is None:
        glyphs = _build(minimum_faces)
        # A cache that cannot be written only makes the next load slower.
        with contextlib.suppress(OSError):
            _write(glyphs, file)
    return _as_dataset(glyphs)


@dataclass(frozen=True, eq=False)
class _Glyphs:
    """Content of the cache: pictures, their labels, and the characters of each class."""

    pictures: Pictures
    labels: NDArray[np.int64]
    members: NDArray[np.int64]
    member_labels: NDArray[np.int64]


def _build(minimum_faces: int) -> _Glyphs:
    pictures = render(minimum_faces)
    characters, classes = merge_lookalikes(pictures)
    labels = classes[np.searchsorted(characters, pictures.characters)]
    by_class = np.argsort(labels, kind="stable")
    keep = by_class[find_unambiguous(pictures.images[by_class], labels[by_class])]
    keep = keep[np.bincount(labels[keep], minlength=len(characters))[labels[keep]] >= minimum_faces]
    remaining, kept_labels = np.unique(labels[keep], return_inverse=True)
    is_member = np.isin(classes, remaining)
    return _Glyphs(
        pictures=pictures.take(keep),
        labels=kept_labels,
        members=characters[is_member],
        member_labels=np.searchsorted(remaining, classes[is_member]),
    )


def _as_dataset(glyphs: _Glyphs) -> Dataset:
    from fontTools.unicodedata import block, script, script_name

    members = [""] * (int(glyphs.labels.max()) + 1)
    for character, label in zip(glyphs.members.tolist(), glyphs.member_labels.tolist(), strict=True):
        members[label] += chr(character)
    images, labels = torch.from_numpy(glyphs.pictures.images).unsqueeze(1), torch.from_numpy(glyphs.labels)
    return Dataset(
        name="glyphs",
        images=images,
        labels=labels,
        class_names=tuple(f"U+{ord(group[0]):04X} {group[0]} {unicodedata.name(group[0])}" for group in members),
        class_attributes={
            "script": tuple(script_name(script(group[0])) for group in members),
            "block": tuple(block(group[0]) for group in members),
            "members": tuple(members),
        },
        sample_attributes={
            "face": tuple(FACES[face] for face in glyphs.pictures.faces.tolist()),
            "character": tuple(chr(character) for character in glyphs.pictures.characters.tolist()),
        },
        lookalike_reason="different characters look alike in some typefaces",
    )


def _cache_file(minimum_faces: int) -> Path:
    """The file for these options, typefaces and drawing libraries; anything else gives another name."""
    from PIL import __version__ as pillow_version
    from PIL import features

    content = {
        "version": VERSION,
        "minimum_faces": minimum_faces,
        "typefaces": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in face_files()},
        "pillow": pillow_version,
        "freetype": features.version("freetype2"),
        "unicode": unicodedata.unidata_version,
    }
    fingerprint = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return cache_directory() / "glyphs" / f"glyphs-{minimum_faces}-{fingerprint[:32]}.npz"


def _read(file: Path) -> _Glyphs | None:
    """The cached glyphs, or None where the file is missing, or with a warning where it is damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    arrays, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(arrays).digest() != digest:
        warnings.warn(f"{file} is damaged; the glyphs are drawn again", stacklevel=3)
        return None
    with np.load(BytesIO(arrays), allow_pickle=False) as stored:
        return _Glyphs(
            pictures=Pictures(stored["images"], stored["characters"], stored["faces"]),
            labels=stored["labels"],
            members=stored["members"],
            member_labels=stored["member_labels"],
        )


def _write(glyphs: _Glyphs, file: Path) -> None:
    buffer = BytesIO()
    np.savez(
        buffer,
        images=glyphs.pictures.images,
        characters=glyphs.pictures.characters,
        faces=glyphs.pictures.faces,
        labels=glyphs.labels,
        members=glyphs.members,
        member_labels=glyphs.member_labels,
    )
    arrays = buffer.getvalue()
    write_atomically(file, arrays + hashlib.sha256(arrays).digest())
