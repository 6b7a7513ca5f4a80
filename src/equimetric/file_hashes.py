"""Content hashes of files, computed once and cached."""

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

HASH_CACHE = "hashes.sqlite"
RACY_SECONDS = 2.0
"""A file changed more recently than this is not cached: a second change could leave the same time stamps."""
QUERY_CHUNK_SIZE = 500


class Stamp(NamedTuple):
    """Size and times of a file; a cached hash is valid while they are unchanged."""

    size: int
    mtime_ns: int
    ctime_ns: int


def hash_file(path: str | Path) -> str:
    """The sha256 of a file's content, in hexadecimal.

    Cached across processes under `cache_directory()` by path, size, mtime and ctime, so that an unchanged file is
    read once. A file whose content changes while all four stay the same is not noticed; replacing a file by another
    of equal size and mtime is, because that changes its ctime.
    """
    path = Path(path).absolute()
    stamp = read_stamp(path)
    return _hash_unchanged(path, stamp) if stamp is not None and _is_old(stamp) else _hash_one(path)


@lru_cache(maxsize=64)
def _hash_unchanged(path: Path, stamp: Stamp) -> str:  # noqa: ARG001  (the stamp is part of the cache key)
    """`_hash_one`, cached in this process, too: the next run of a worker asks for the same weight file."""
    return _hash_one(path)


def _hash_one(path: Path) -> str:
    (digest,) = hash_files([path])
    return _read_hash(path) if digest is None else digest


def hash_files(paths: Sequence[Path]) -> list[str | None]:
    """`hash_file` of many files, in threads; None for a file that cannot be read."""
    keys = [os.fsencode(path.absolute()) for path in paths]
    stamps = [read_stamp(path) for path in paths]
    cached = _read_cache(keys)
    digests: list[str | None] = [None] * len(paths)
    missing = []
    for index, (key, stamp) in enumerate(zip(keys, stamps, strict=True)):
        cached_stamp, digest = cached.get(key, (None, None))
        if stamp is not None and stamp == cached_stamp:
            digests[index] = digest
        else:
            missing.append(index)
    with ThreadPoolExecutor() as pool:
        for index, computed in zip(missing, pool.map(_try_hash, [paths[index] for index in missing]), strict=True):
            digests[index] = computed
    rows = [
        (keys[index], *stamp, digest)
        for index in missing
        if (stamp := stamps[index]) is not None and (digest := digests[index]) is not None and _is_old(stamp)
    ]
    if rows:
        _write_cache(rows)
    return digests


def read_stamp(path: Path) -> Stamp | None:
    """Size and times of a file; None where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _is_old(stamp: Stamp) -> bool:
    """Whether the file was last changed long enough ago for its hash to be cached."""
    return max(stamp.mtime_ns, stamp.ctime_ns) <= (time.time() - RACY_SECONDS) * 1e9


def _read_hash(path: Path) -> str:
    reason = unreadable_reason(path)
    if reason and reason != NOT_THERE:
        raise EquimetricError(f"{quote(str(path))} {reason}; give a regular file")
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _try_hash(path: Path) -> str | None:
    try:
        return _read_hash(path)
    except (OSError, EquimetricError):
        return None


def _read_cache(keys: Sequence[bytes]) -> dict[bytes, tuple[Stamp, str]]:
    """Stamp and hash of the files that are cached."""
    cached: dict[bytes, tuple[Stamp, str]] = {}

    def select(connection: "Connection") -> None:
        for start in range(0, len(keys), QUERY_CHUNK_SIZE):
            chunk = keys[start : start + QUERY_CHUNK_SIZE]
            placeholders = ", ".join("?" * len(chunk))
            for *row, checksum in connection.execute(
                f"SELECT * FROM checked_hashes WHERE path IN ({placeholders})", chunk
            ):
                path, *stamp, digest = row
                if checksum != _row_checksum(row):
                    raise ValueError("a row is not what was written")
                cached[path] = (Stamp(*stamp), digest)

    return cached if _use_cache(select) else {}


def _write_cache(rows: Sequence[tuple[bytes, int, int, int, str]]) -> None:
    checked = [(*row, _row_checksum(row)) for row in rows]
    insert = "INSERT OR REPLACE INTO checked_hashes VALUES (?, ?, ?, ?, ?, ?)"
    _use_cache(lambda connection: connection.executemany(insert, checked))


def _row_checksum(row: Sequence[object]) -> str:
    return hashlib.sha256(repr(tuple(row)).encode()).hexdigest()[:16]


def _use_cache(transaction: "Callable[[Connection], object]") -> bool:
    """Run one transaction on the table of cached hashes; where that fails, hashes are computed again instead.

    A damaged cache is named in a warning and removed.
    """
    import sqlite3

    file = cache_directory() / HASH_CACHE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS checked_hashes (path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, "
                "ctime_ns INTEGER, sha256 TEXT, checksum TEXT) WITHOUT ROWID"
            )
            transaction(connection)
            return True
    except (OSError, sqlite3.OperationalError):
        pass  # no place to write, or locked for too long
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:  # damaged, or a table of another kind
        warnings.warn(f"{file} is damaged ({error}); it is removed, and files are hashed again", stacklevel=2)
        for path in (file, file.with_name(f"{file.name}-journal")):
            with contextlib.suppress(OSError):
                path.unlink()
    return False
