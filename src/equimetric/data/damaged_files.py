"""Image files that cannot be read, found once and remembered."""

import contextlib
import warnings
from collections.abc import Sequence
from pathlib import Path

from equimetric.checksums import json_document, read_json
from equimetric.data.decoding import map_in_threads
from equimetric.data.exclusions import Damaged
from equimetric.data.file_store import UNREADABLE, FileStore
from equimetric.data.views import Resize
from equimetric.errors import DamagedFileError, EquimetricError, quote
from equimetric.files import NOT_THERE, cache_directory, unreadable_reason, write_atomically

__all__ = ["damaged_files"]

CHECK_VERSION = 2
"""Raised whenever other files count as damaged, so that older outcomes are not used."""


def damaged_files(store: FileStore, *, missing: Damaged = "refuse") -> dict[int, str]:
    """Files that cannot be read, with the reason: {index: 'path (reason)'}.

    Every file is decoded once, JPEGs at an eighth of their size. The outcome is remembered under `cache_directory()`
    for the same content. Files that are not there raise an error, unless `missing` is 'skip': then they are listed too.
    """
    absent = [index for index, file in enumerate(store.files) if unreadable_reason(file) == NOT_THERE]
    if absent and missing == "refuse":
        more = f", nor are {len(absent) - 1:,} others" if len(absent) > 1 else ""
        raise EquimetricError(
            f"the image {quote(str(store.files[absent[0]]))} (number {absent[0] + 1:,} of {len(store.files):,}) is not "
            f"there{more}; check that the archive was unpacked completely, or leave out what is missing with "
            "damaged='skip'"
        )
    smallest = Resize(1, "square")
    store.forget_hashes()
    record = cache_directory() / "checked" / f"{store.fingerprint(smallest)}-{CHECK_VERSION}.json"
    hashed = [index for index, content in enumerate(store.hashes) if content != UNREADABLE]
    reasons = _read_record(record)
    if reasons is None:
        reasons = _find_reasons(store, hashed, smallest)
        # Where this cannot be written the next load checks again.
        with contextlib.suppress(OSError):
            write_atomically(record, json_document({str(index): reason for index, reason in reasons.items()}))
    # What has no content, such as a missing file, may be there the next time.
    reasons |= _find_reasons(store, sorted({*range(len(store.files))} - {*hashed}), smallest)
    return {index: f"{store.files[index]} ({reason})" for index, reason in sorted(reasons.items())}


def _find_reasons(store: FileStore, indices: Sequence[int], resize: Resize) -> dict[int, str]:
    """The reason why a file cannot be read, for each of these that cannot."""

    def check(index: int) -> str:
        outcome = store.attempt(index, resize, "fast")
        return outcome if isinstance(outcome, str) else ""

    outcomes = map_in_threads(check, indices, description="Checking images")
    return {index: reason for index, reason in zip(indices, outcomes, strict=True) if reason}


def _read_record(record: Path) -> dict[int, str] | None:
    """The remembered reasons; None where there are none, or with a warning where they are damaged."""
    if not record.exists():
        return None
    try:
        return {int(index): reason for index, reason in read_json(record, dict, "").items()}
    except (DamagedFileError, ValueError) as error:
        problem = error.problem if isinstance(error, DamagedFileError) else f"{record} is damaged ({error})"
        warnings.warn(f"{problem}; the image files are checked again", stacklevel=2)
        return None
