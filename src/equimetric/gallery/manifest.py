"""`gallery.json`, the manifest of a gallery: its files, and how many of their rows are valid.

Array files only grow. Rows beyond those of the manifest, and files that it does not name, are left by an interrupted
write.
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from equimetric.checksums import json_document, read_json
from equimetric.errors import DamagedFileError, EquimetricError
from equimetric.files import write_atomically
from equimetric.gallery.codes import ItemQuantizer

__all__ = ["MANIFEST", "REMOVED", "ItemPart", "Manifest"]

MANIFEST = "gallery.json"
REMOVED = "removed"
"""Name of the checksum of the file with the removed rows."""
FAMILY, SCHEMA = "equimetric.gallery", 2
ADVICE = "restore the gallery from a copy, or make it again"


@dataclass(frozen=True)
class ItemPart:
    """A Parquet file with ids and metadata of consecutive rows; size and CRC-32 are None in those of schema 1."""

    file: str
    rows: int
    bytes: int | None = None
    checksum: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The state of a gallery at one commit.

    tasks      tasks of its certificates, which are files TASK.json; the first decides
    identity   metadata column that names the identity of an item; None: its id
    rows       rows of every array file, removed ones included
    version    number of commits, by which new files are named
    codes      version of the codes; None before the first row
    common     quantizer of the codes of all rows
    parts      ids and metadata, in the order of the rows
    removed    file with the rows that were removed
    checksums  of the array files, by blocks of rows, and of the file of removed rows; schema 1 has none
    """

    tasks: tuple[str, ...]
    identity: str | None = None
    rows: int = 0
    version: int = 0
    codes: int | None = None
    common: ItemQuantizer | None = None
    parts: tuple[ItemPart, ...] = ()
    removed: str | None = None
    checksums: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest of a folder; an error where there is none, or a damaged or newer one."""
        file = folder / MANIFEST
        if not file.is_file():
            raise EquimetricError(
                f"there is no gallery in {str(folder)!r}; make one with equimetric index, or with Gallery.create"
            )
        document = read_json(file, dict, ADVICE)
        family, _, version = str(document.pop("schema", None)).partition("/")
        if family != FAMILY or not version.isdecimal():
            raise EquimetricError(f"{str(file)!r} is no manifest of a gallery; give a folder that Gallery.create made")
        if int(version) > SCHEMA:
            raise EquimetricError(
                f"{str(folder)!r} has schema {version}, this version reads {SCHEMA}; upgrade equimetric"
            )
        try:
            return cls(**_parse(document))
        except (KeyError, TypeError, ValueError) as problem:
            raise DamagedFileError(f"{file} is damaged ({problem})", ADVICE) from None

    def write(self, folder: Path) -> None:
        """Commit: replace the manifest of a folder by this one."""
        write_atomically(folder / MANIFEST, json_document({"schema": f"{FAMILY}/{SCHEMA}", **asdict(self)}, indent=2))

    def next(self, **changes: Any) -> "Manifest":
        """The manifest of the next commit."""
        return replace(self, version=self.version + 1, **changes)

    @property
    def numbers(self) -> dict[str, str]:
        """Content → name of every array file."""
        return {
            "vectors": "vectors.f32",
            "shifts": "shifts.f32",
            "codes": f"codes-{self.codes}.i8",
            "residuals": f"residuals-{self.codes}.f32",
        }

    @property
    def files(self) -> set[str]:
        """The names of all files of the gallery."""
        removed = set() if self.removed is None else {self.removed}
        certificates = {f"{task}.json" for task in self.tasks}
        return {MANIFEST, *self.numbers.values(), *(part.file for part in self.parts), *removed, *certificates}


def _parse(document: dict[str, Any]) -> dict[str, Any]:
    common = document["common"]
    return {
        **document,
        "tasks": tuple(document["tasks"]),
        "common": None if common is None else ItemQuantizer(**common),
        "parts": tuple(ItemPart(**part) for part in document["parts"]),
        "checksums": {name: tuple(values) for name, values in document.get("checksums", {}).items()},
    }
