"""Files: writes that survive crashes, the cache folder, content hashes computed once, what is no file to read."""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from equimetric.errors import EquimetricError, quote

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = [
    "Stamp",
    "cache_directory",
    "explain_write_error",
    "hash_file",
    "hash_files",
    "make_folder",
    "read_stamp",
    "require_file",
    "sweep",
    "sync_file",
    "sync_folder",
    "unfinished_folder",
    "why_no_file",
    "write_atomically",
]

HASH_MEMORY = "hashes.sqlite"
TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")
"""Names of files that are being written."""
YOUNG = 2.0
"""Seconds. A file changed more recently is not remembered: a second change could leave the same time stamps."""
ROWS_PER_QUERY = 500

NOT_THERE, IS_FOLDER = "is not there", "is a folder"
OTHER_KINDS: dict[str, Callable[[int], bool]] = {
    IS_FOLDER: stat.S_ISDIR,
    "is a named pipe": stat.S_ISFIFO,
    "is a socket": stat.S_ISSOCK,
    "is a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
}


def write_atomically(path: Path, content: str | bytes, *, sync: bool = True) -> None:
    """Replace the file at `path`, creating its folder if needed; a crash leaves the old content or the new.

    On return the new content is on the disk, unless `sync` leaves that to a later `sync_file` and `sync_folder`. What a
    killed write of the same file left is removed.
    """
    make_folder(path.parent)
    sweep(path.parent, path.name)
    data = content.encode("utf-8") if isinstance(content, str) else content
    descriptor, temporary = _create_temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def _create_temporary(path: Path) -> tuple[int, Path]:
    """A new file beside `path`, locked while its writer lives."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        _lock(descriptor)
        if _is_at(descriptor, Path(name)):
            return descriptor, Path(name)
        os.close(descriptor)  # swept before it was locked


def sweep(folder: Path, name: str = "") -> None:
    """Remove the temporary files that killed writers left in a folder, of the file `name` or of all."""
    start = f".{name}." if name else "."
    for file in folder.iterdir() if folder.is_dir() else ():
        if TEMPORARY.fullmatch(file.name) and file.name.startswith(start) and file.is_file():
            # A live writer holds the lock.
            with contextlib.suppress(OSError), file.open("rb") as opened:
                if _lock(opened.fileno(), wait=False):
                    file.unlink()


def _lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock a file for as long as it is open; False where it is locked, or cannot be on this file system."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, so that they survive a crash."""
    while not folder.is_dir():
        make_folder(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError:
            if os.path.lexists(folder) and not folder.is_dir():
                raise
            continue  # another process made it and has removed it since
        sync_folder(folder.parent)


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: what was created, replaced or removed there."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def unfinished_folder(folder: Path) -> Iterator[Path]:
    """An empty folder in which to make `folder`, to be renamed to it; only one process at a time has it.

    Others wait, and then should look whether `folder` is there. What is left in it at the end, or was left by a killed
    process, is removed.
    """
    import fcntl

    unfinished = folder.with_name(f".{folder.name}")
    while True:
        make_folder(unfinished)
        try:
            descriptor = os.open(unfinished, os.O_RDONLY)
        except FileNotFoundError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(descriptor, unfinished):
            break
        os.close(descriptor)  # the process before has renamed or removed it
    try:
        for left in unfinished.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield unfinished
    finally:
        if _is_at(descriptor, unfinished):
            shutil.rmtree(unfinished, ignore_errors=True)
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file or folder is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def explain_write_error(error: OSError) -> str:
    """Why a write failed, for a sentence."""
    return "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)


def why_no_file(path: Path) -> str:
    """'' for a regular file or a link to one; else why it cannot be read, such as 'is a named pipe'.

    Opening a pipe would wait for a writer that may never come.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return NOT_THERE
        return f"cannot be read ({error.strerror})"
    except ValueError:
        return "has a name that no file can have"
    if stat.S_ISREG(mode):
        return ""
    return next((kind for kind, holds in OTHER_KINDS.items() if holds(mode)), "is no regular file")


def require_file(path: Path, advice: str) -> None:
    """Raise an error with advice unless the path is that of a regular file."""
    why = why_no_file(path)
    if why:
        name = quote(str(path))
        raise EquimetricError(f"there is no file {name}; {advice}" if why == NOT_THERE else f"{name} {why}; {advice}")


def cache_directory() -> Path:
    """Folder of derived data: $EQUIMETRIC_CACHE, or the user's cache folder of the operating system."""
    chosen = os.environ.get("EQUIMETRIC_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("equimetric")


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
    return max(stamp.mtime_ns, stamp.ctime_ns) <= (time.time() - YOUNG) * 1e9


def _read_hash(path: Path) -> str:
    why = why_no_file(path)
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
