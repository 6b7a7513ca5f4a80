"""Reports of what a data set leaves out: damaged files, other files, and classes with few images."""

import contextlib
import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from equimetric.errors import EquimetricError, EquimetricWarning
from equimetric.files import cache_directory, write_atomically

__all__ = ["Damaged", "list_first", "report_damaged", "report_skipped", "report_small_classes"]

MAX_NAMES = 5

Damaged: TypeAlias = Literal["refuse", "skip"]
"""Handling of image files that cannot be read: raise one error that names them, or warn and leave them out."""


def list_first(names: Sequence[str], max_names: int = MAX_NAMES) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - max_names:,} more" if len(names) > max_names else ""
    return ", ".join(names[:max_names]) + more


def report_damaged(unreadable: Sequence[str], damaged: Damaged) -> None:
    """Name the files that cannot be read, in an error or, where they are skipped, in a warning."""
    if not unreadable:
        return
    names = list_first(unreadable) + (_write_list(unreadable) if len(unreadable) > MAX_NAMES else "")
    if damaged == "refuse":
        raise EquimetricError(
            f"{len(unreadable)} image file(s) cannot be read; remove or replace them, or leave them out with "
            f"damaged='skip': {names}"
        )
    _warn(f"{len(unreadable)} image file(s) cannot be read and are left out: {names}")


def report_skipped(skipped: Sequence[str]) -> None:
    """Name the files among the images that are not read, such as HEIC."""
    if skipped:
        _warn(
            f"{len(skipped):,} file(s) that are no images of a known format are skipped: {list_first(skipped)}; "
            "convert those that should count to JPEG or PNG"
        )


def report_small_classes(small: Mapping[str, int], min_images: int) -> None:
    """Name the classes with too few images, each with its number."""
    if small:
        names = list_first([f"{name} ({count})" for name, count in small.items()])
        _warn(f"{len(small):,} class(es) with fewer than min_images = {min_images} images are left out: {names}")


def _warn(message: str) -> None:
    warnings.warn(message, EquimetricWarning, stacklevel=4)


def _write_list(unreadable: Sequence[str]) -> str:
    """Write the complete list to a file and say where; nothing where that fails."""
    content = os.fsencode("\n".join(unreadable) + "\n")
    file = cache_directory() / "damaged" / f"{hashlib.sha256(content).hexdigest()[:16]}.txt"
    with contextlib.suppress(OSError):
        write_atomically(file, content)
        return f", all listed in {file}"
    return ""
