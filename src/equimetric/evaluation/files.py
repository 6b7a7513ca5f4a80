"""Embeddings made elsewhere, from a file."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from equimetric.errors import EquimetricError, unknown_name

__all__ = ["read_embeddings"]

REQUIRED = ("embeddings", "labels")
OPTIONAL = ("gallery_embeddings", "gallery_labels")


def read_embeddings(file: Path) -> dict[str, Any]:
    """The arrays 'embeddings' and 'labels', and where present those of the gallery, of an .npz file."""
    if not file.exists():
        raise EquimetricError(f"there is no file {str(file)!r}; check the path")
    try:
        # Opened here and not by numpy, which would leave it open when it is no archive.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            names = getattr(stored, "files", None)
            arrays = {name: stored[name] for name in names} if names is not None else None
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile):
        arrays = None
    if arrays is None:
        raise EquimetricError(
            f"{str(file)!r} is not an .npz file of plain arrays; write one with "
            "numpy.savez(file, embeddings=…, labels=…)"
        )
    for name in arrays:
        if name not in REQUIRED + OPTIONAL:
            raise unknown_name(f"array in {str(file)!r}", name, REQUIRED + OPTIONAL)
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise EquimetricError(f"{str(file)!r} has no array {missing[0]!r}; it needs 'embeddings' and 'labels'")
    return arrays
