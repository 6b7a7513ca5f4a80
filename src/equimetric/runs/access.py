"""Write access to a folder: permission, one lock, and removal of the files of a failed start."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from equimetric.errors import StorageError
from equimetric.files import make_folder

__all__ = ["acquire_lock", "first_missing", "remove_files", "remove_folders", "require_writable"]

MAX_HOLDER_BYTES = 1000
"""Largest size of the record of a lock's holder."""


def require_writable(folder: Path, name: str) -> None:
    """Raise an error where a folder can be neither created nor written to, before anything else happens."""
    missing = first_missing(folder)
    existing = folder if missing is None else missing.parent
    if not existing.is_dir():
        reason = f"{str(existing)!r} is not a folder"
    elif not os.access(existing, os.W_OK | os.X_OK):
        reason = f"{str(existing)!r} is write-protected"
    else:
        try:
            folder.stat()
            return
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise StorageError(
        f"cannot write to the {name} {str(folder)!r}: {reason}; choose another folder or make it writable"
    )


def first_missing(folder: Path) -> Path | None:
    """The topmost folder that must be created for a folder to exist; None where it exists."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    return missing[-1] if missing else None


def remove_files(files: Iterable[Path]) -> None:
    """Remove files if they exist; failures are ignored."""
    for file in files:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def remove_folders(folder: Path, topmost: Path) -> None:
    """Remove a folder and its parents up to `topmost`, as long as they are empty."""
    with suppress(OSError):
        for path in (folder, *folder.parents):
            path.rmdir()
            if path == topmost:
                return


def acquire_lock(file: Path) -> int:
    """Lock a file against other processes until its descriptor is closed, creating its folder.

    The lock is released when the process dies. Where another process holds it, a warning says which one this process
    waits for.
    """
    while True:
        make_folder(file.parent)
        with suppress(FileNotFoundError):
            # Not truncated: the file says who holds the lock.
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                wait_for_lock(descriptor, file)
                # A failed start removes its folder: then the lock that was waited for is that of a lost file.
                if os.path.samestat(os.fstat(descriptor), file.stat()):
                    write_holder(descriptor)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def wait_for_lock(descriptor: int, file: Path) -> None:
    """Lock an open file, with a warning if it has to wait."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = describe_holder(os.pread(descriptor, MAX_HOLDER_BYTES, 0))
        warnings.warn(f"{str(file.parent)!r} is in use by {holder}; waiting until it is free", stacklevel=2)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def write_holder(descriptor: int) -> None:
    """Write process, host and time into the file of a lock; a full disk does not matter here."""
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def describe_holder(content: bytes) -> str:
    """'process 4711 on host since 2026-01-31 12:00:00', or 'another process' where the lock file does not tell."""
    try:
        holder = json.loads(content)
        return f"process {int(holder['pid'])} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
