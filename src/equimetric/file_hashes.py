"""Content hashes of files, computed once and remembered."""

import contextlib
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from equimetric.errors import EquimetricError, quote
from equimetric.files import NOT_THERE, cache_directory, unreadable_reason

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["Stamp", "hash_file", "hash_files", "read_stamp"]

HASH_MEMORY = "hashes.sqlite"
RACY_SECONDS = 2.0
"""Seconds. A file changed more recently is not remembered: a second change could leave the same time stamps."""
ROWS_PER_QUERY = 500


class Stamp(NamedTuple):
    """What a remembered hash is valid for: a file whose size and times are unchanged."""

    size: int
    mtime_ns: int
    ctime_ns: int


def hash_file(path: str | Path) -> str:
    """The sha256 of a file's content, in hexadecimal.

    Remembered across processes under `cache_directory()` by path, size, mtime and ctime, so that an unchanged file is
    read once. A file whose content changes while all four stay the same is not noticed; replacing a file by another
    of equal size and mtime is, because that changes its ctime.
    """
    path = Path(path).absolute()
    stamp = read_stamp(path)
    return _hash_unchanged(path, stamp) if stamp is not None and _is_old(stamp) else _hash_one(path)


@lru_cache(maxsize=64)
def _hash_unchanged(path: Path, stamp: Stamp) -> str:  # noqa: ARG001  (what is remembered is valid for the stamp)
    """`_hash_one`, remembered in this process, too: the next run of a worker asks for the same weight file."""
    return _hash_one(path)


def _hash_one(path: Path) -> str:
    (digest,) = hash_files([path])
    return _read_hash(path) if digest is None else digest


def hash_files(paths: Sequence[Path]) -> list[str | None]:
    """`hash_file` of many files, in threads; None for a file that cannot be read."""
    keys = [os.fsencode(path.absolute()) for path in paths]
    stamps = [read_stamp(path) for path in paths]
    known = _recall(keys)
    digests: list[str | None] = [None] * len(paths)
    unknown = []
    for number, (key, stamp) in enumerate(zip(keys, stamps, strict=True)):
        remembered, digest = known.get(key, (None, None))
        if stamp is not None and stamp == remembered:
            digests[number] = digest
        else:
            unknown.append(number)
    with ThreadPoolExecutor() as pool:
        for number, computed in zip(unknown, pool.map(_try_hash, [paths[n] for n in unknown]), strict=True):
            digests[number] = computed
    rows = [
        (keys[number], *stamp, digest)
        for number in unknown
        if (stamp := stamps[number]) is not None and (digest := digests[number]) is not None and _is_old(stamp)
    ]
    if rows:
        _remember(rows)
    return digests


def read_stamp(path: Path) -> Stamp | None:
    """Size and times of a file; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _is_old(stamp: Stamp) -> bool:
    """Whether the file was last changed long enough ago for its hash to be remembered."""
    return max(stamp.mtime_ns, stamp.ctime_ns) <= (time.time() - RACY_SECONDS) * 1e9


def _read_hash(path: Path) -> str:
    why = unreadable_reason(path)
    if why and why != NOT_THERE:
        raise EquimetricError(f"{quote(str(path))} {why}; give a regular file")
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _try_hash(path: Path) -> str | None:
    try:
        return _read_hash(path)
    except (OSError, EquimetricError):
        return None


def _recall(keys: Sequence[bytes]) -> dict[bytes, tuple[Stamp, str]]:
    """Stamp and hash of the files that are remembered."""
    found: dict[bytes, tuple[Stamp, str]] = {}

    def select(memory: "Connection") -> None:
        for start in range(0, len(keys), ROWS_PER_QUERY):
            some = keys[start : start + ROWS_PER_QUERY]
            marks = ", ".join("?" * len(some))
            for *row, checksum in memory.execute(f"SELECT * FROM checked_hashes WHERE path IN ({marks})", some):
                path, *stamp, digest = row
                if checksum != _row_checksum(row):
                    raise ValueError("a row is not what was written")
                found[path] = (Stamp(*stamp), digest)

    return found if _use_memory(select) else {}


def _remember(rows: Sequence[tuple[bytes, int, int, int, str]]) -> None:
    checked = [(*row, _row_checksum(row)) for row in rows]
    insert = "INSERT OR REPLACE INTO checked_hashes VALUES (?, ?, ?, ?, ?, ?)"
    _use_memory(lambda memory: memory.executemany(insert, checked))


def _row_checksum(row: Sequence[object]) -> str:
    return hashlib.sha256(repr(tuple(row)).encode()).hexdigest()[:16]


def _use_memory(work: "Callable[[Connection], object]") -> bool:
    """Run one transaction on the table of remembered hashes; where that fails, hashes are computed again instead.

    A damaged memory is named in a warning and removed.
    """
    import sqlite3

    file = cache_directory() / HASH_MEMORY
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(file)) as memory, memory:
            memory.execute(
                "CREATE TABLE IF NOT EXISTS checked_hashes (path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, "
                "ctime_ns INTEGER, sha256 TEXT, checksum TEXT) WITHOUT ROWID"
            )
            work(memory)
            return True
    except (OSError, sqlite3.OperationalError):
        pass  # no place to write, or locked for too long
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:  # damaged, or a table of another kind
        warnings.warn(f"{file} is damaged ({error}); it is removed, and files are hashed again", stacklevel=2)
        for damaged in (file, file.with_name(f"{file.name}-journal")):
            with contextlib.suppress(OSError):
                damaged.unlink()
    return False
