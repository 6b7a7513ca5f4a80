"""The version of the code that computes a result, by content, to distinguish results of different code."""

import hashlib
from functools import cache
from pathlib import Path

__all__ = ["code_fingerprint"]

IRRELEVANT_PACKAGES = ("cli", "report", "explain", "protocols", "published", "constructors", "estimators")
"""Rooms that compute no result of a run."""


@cache
def code_fingerprint() -> str:
    """Hash of the source files of this package that a result may depend on."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package)
        if path.parts[0] not in IRRELEVANT_PACKAGES:
            digest.update(path.as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
