"""Checksums of stored files: a document carries its own, and those of the files that it describes.

A JSON document has its checksum as the first key, a TOML document in its first line: the sha256 of the text with zeros
in place of the digits. Weights, arrays and logs are covered by a table in the document that is written after them.
Files of older versions have no checksum and are read as they are.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from equimetric.errors import DamagedFileError

__all__ = [
    "Checksum",
    "checksum",
    "has_content",
    "json_document",
    "read_any_json",
    "read_document",
    "read_json",
    "toml_document",
]

Content = TypeVar("Content", dict[str, Any], list[Any])

BLANK = "sha256:" + "0" * 64
CHECKSUM_PATTERN = re.compile(rb"sha256:(.{64})", re.DOTALL)
MAX_HEADER_BYTES = 128
"""The checksum is within this many bytes at the start of a document."""


class Checksum(TypedDict):
    """Length and hash of a file's content; a log may have grown since."""

    bytes: int
    sha256: str


def checksum(content: bytes) -> Checksum:
    """Length and sha256 of a file's content."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def has_content(content: bytes, expected: Checksum) -> bool:
    """Whether the first bytes of a file are those that were written."""
    return len(content) >= expected["bytes"] and checksum(content[: expected["bytes"]]) == expected


def json_document(values: Mapping[str, Any], *, indent: int | None = None) -> str:
    """A JSON object with its own checksum."""
    return _insert_checksum(json.dumps({"checksum": BLANK, **values}, indent=indent))


def toml_document(text: str) -> str:
    """A TOML document with its own checksum."""
    return _insert_checksum(f"# checksum {BLANK}\n{text}")


def read_document(file: Path, advice: str) -> str:
    """The text of a stored document; one that is not what was written raises one sentence with advice."""
    try:
        content = file.read_bytes()
        if not _matches_checksum(content):
            raise DamagedFileError(f"{file} is damaged (its checksum does not match)", advice)
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{file} is damaged ({error})", advice) from None


def read_json(file: Path, kind: type[Content], advice: str) -> Content:
    """The content of a stored JSON file, an object or a list, without its checksum."""
    content = read_any_json(file, advice)
    if not isinstance(content, kind):
        raise DamagedFileError(f"{file} is damaged (it holds no {kind.__name__})", advice)
    return content


def read_any_json(file: Path, advice: str) -> Any:
    """The content of a stored JSON file without its checksum."""
    text = read_document(file, advice)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{file} is damaged ({error})", advice) from None
    if isinstance(content, dict):
        content.pop("checksum", None)
    return content


def _matches_checksum(content: bytes) -> bool:
    """Whether a document is what was written; true for one without a checksum."""
    match = CHECKSUM_PATTERN.search(content[:MAX_HEADER_BYTES])
    if match is None:
        return True
    blank = content[: match.start()] + BLANK.encode() + content[match.end() :]
    return match[1] == hashlib.sha256(blank).hexdigest().encode()


def _insert_checksum(blank: str) -> str:
    return blank.replace(BLANK, f"sha256:{hashlib.sha256(blank.encode()).hexdigest()}", 1)
