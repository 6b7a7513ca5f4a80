"""Writing files so that a crash leaves either the old content or the new, never half of it."""

import hashlib
import os
import tempfile
from pathlib import Path

__all__ = ["hash_file", "write_atomically"]


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the file at `path`, making its folder where needed."""
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


def hash_file(path: Path) -> str:
    """The sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
