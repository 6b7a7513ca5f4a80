"""Files: atomic writes, the cache folder, and content hashes that are computed once."""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from equimetric.errors import DamagedFileError

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["cache_directory", "hash_file", "hash_files", "read_json", "write_atomically"]

Content = TypeVar("Content", dict[str, Any], list[Any])

HASH_MEMORY = "hashes.sqlite"
YOUNG = 2.0
"""Seconds. A file changed more recently is not remembered: a second change could leave the same time stamps."""
ROWS_PER_QUERY = 500


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the file at `path`, creating its folder if needed; a crash leaves the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_json(file: Path, kind: type[Content], advice: str) -> Content:
    """The content of a JSON file, an object or a list; a damaged file raises one sentence with advice."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{file} is damaged ({error}); {advice}") from None
    if not isinstance(content, kind):
        raise DamagedFileError(f"{file} is damaged (it holds no {kind.__name__}); {advice}")
    return content


def cache_directory() -> Path:
    """Folder of derived data: $EQUIMETRIC_CACHE, or the user's cache folder of the operating system."""
    chosen = os.environ.get("EQUIMETRIC_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("equimetric")


class _Stamp(NamedTuple):
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
    path = Path(path)
    (digest,) = hash_files([path])
    return _read_hash(path) if digest is None else digest


def hash_files(paths: Sequence[Path]) -> list[str | None]:
    """`hash_file` of many files, in threads; None for a file that cannot be read."""
    keys = [os.fsencode(path.absolute()) for path in paths]
    stamps = [_read_stamp(path) for path in paths]
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
    oldest = (time.time() - YOUNG) * 1e9
    rows = [
        (keys[number], *stamp, digest)
        for number in unknown
        if (stamp := stamps[number]) is not None
        and (digest := digests[number]) is not None
        and max(stamp.mtime_ns, stamp.ctime_ns) <= oldest
    ]
    if rows:
        _remember(rows)
    return digests


def _read_stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read_hash(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _try_hash(path: Path) -> str | None:
    try:
        return _read_hash(path)
    except OSError:
        return None


def _recall(keys: Sequence[bytes]) -> dict[bytes, tuple[_Stamp, str]]:
    """Stamp and hash of the files that are remembered."""
    found: dict[bytes, tuple[_Stamp, str]] = {}

    def select(memory: "Connection") -> None:
        for start in range(0, len(keys), ROWS_PER_QUERY):
            some = keys[start : start + ROWS_PER_QUERY]
            marks = ", ".join("?" * len(some))
            for path, *stamp, digest in memory.execute(f"SELECT * FROM hashes WHERE path IN ({marks})", some):
                found[path] = (_Stamp(*stamp), digest)

    _use_memory(select)
    return found


def _remember(rows: Sequence[tuple[bytes, int, int, int, str]]) -> None:
    _use_memory(lambda memory: memory.executemany("INSERT OR REPLACE INTO hashes VALUES (?, ?, ?, ?, ?)", rows))


def _use_memory(work: "Callable[[Connection], object]") -> None:
    """Run one transaction on the table of remembered hashes; where that fails, hashes are computed again instead."""
    import sqlite3

    file = cache_directory() / HASH_MEMORY
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(file)) as memory, memory:
            memory.execute(
                "CREATE TABLE IF NOT EXISTS hashes (path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, "
                "ctime_ns INTEGER, sha256 TEXT) WITHOUT ROWID"
            )
            work(memory)
    except (OSError, sqlite3.OperationalError):
        pass  # no place to write, or locked for too long
    except (sqlite3.DatabaseError, ValueError, TypeError):  # damaged, or a table of another kind
        for damaged in (file, file.with_name(f"{file.name}-journal")):
            with contextlib.suppress(OSError):
                damaged.unlink()
