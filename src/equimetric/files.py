"""Files: writes that survive crashes, the cache folder, checks that a path is a readable file."""

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from equimetric.errors import EquimetricError, quote

__all__ = [
    "append_line",
    "cache_directory",
    "ends_with_newline",
    "explain_write_error",
    "make_folder",
    "read_appended",
    "require_file",
    "sweep",
    "sync_file",
    "sync_folder",
    "unfinished_folder",
    "unreadable_reason",
    "write_atomically",
]

TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")
"""Names of files that are being written."""

NOT_THERE, IS_FOLDER = "is not there", "is a folder"
OTHER_KINDS: dict[str, Callable[[int], bool]] = {
    IS_FOLDER: stat.S_ISDIR,
    "is a named pipe": stat.S_ISFIFO,
    "is a socket": stat.S_ISSOCK,
    "is a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
}


def write_atomically(path: Path, content: str | bytes, *, sync: bool = True) -> None:
    """Replace the file at `path`, creating its folder if needed; a crash leaves the old content or the new.

    On return the new content is on the disk, unless `sync` leaves that to a later `sync_file` and `sync_folder`.
    Leftovers of a killed write of the same file are removed.
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
    """Create a new file next to `path`, locked while its writer lives."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        _lock(descriptor)
        if _is_at(descriptor, Path(name)):
            return descriptor, Path(name)
        os.close(descriptor)  # removed before it was locked


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
    """Wait until the names in a folder are on the disk, after files were created, replaced or removed."""
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

    Others wait, and then should check whether `folder` exists. Leftovers in it at the end, or of a killed process, are
    removed.
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
        for leftover in unfinished.iterdir():
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
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


def append_line(file: Path, values: Mapping[str, Any]) -> None:
    """Append values as a line of JSON; a line that a crash cut off is ended first."""
    line = json.dumps(values) + "\n"
    with file.open("ab") as opened:
        if opened.tell() and not ends_with_newline(file):
            line = "\n" + line
        # One write, because several processes may append.
        os.write(opened.fileno(), line.encode())


def read_appended(file: Path) -> list[dict[str, Any]]:
    """The lines of `append_line` that can be read; none where there is no file."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return []
    values = []
    for line in lines:
        with contextlib.suppress(ValueError):
            values.append(json.loads(line))
    return [one for one in values if isinstance(one, dict)]


def ends_with_newline(file: Path) -> bool:
    """Whether the last byte of a file that is not empty is a newline."""
    with file.open("rb") as opened:
        opened.seek(-1, os.SEEK_END)
        return opened.read(1) == b"\n"


def explain_write_error(error: OSError) -> str:
    """The reason a write failed, for a sentence."""
    return "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)


def unreadable_reason(path: Path) -> str:
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
    return next((kind for kind, test in OTHER_KINDS.items() if test(mode)), "is no regular file")


def require_file(path: Path, advice: str) -> None:
    """Raise an error with advice unless the path is that of a regular file."""
    reason = unreadable_reason(path)
    if reason:
        name = quote(str(path))
        raise EquimetricError(
            f"there is no file {name}; {advice}" if reason == NOT_THERE else f"{name} {reason}; {advice}"
        )


def cache_directory() -> Path:
    """Folder of derived data: $EQUIMETRIC_CACHE, or the user's cache folder of the operating system."""
    configured = os.environ.get("EQUIMETRIC_CACHE")
    if configured:
        return Path(configured).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("equimetric")
