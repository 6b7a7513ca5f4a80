"""The stores of galleries, and `store.json`, which records the store in the folder of a gallery."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from equimetric.checksums import json_document, read_json
from equimetric.errors import DamagedFileError, EquimetricError, unknown_name
from equimetric.files import write_atomically
from equimetric.gallery.manifest import MANIFEST, Manifest

__all__ = ["EMBEDDED", "StoreRecord", "is_gallery_folder", "store_class"]

EMBEDDED = "embedded"
STORES = {
    EMBEDDED: ("file_gallery", "FileGallery"),
    "lancedb": ("lance", "LanceGallery"),
    "qdrant": ("qdrant", "QdrantGallery"),
}
"""Module and class of every store."""
FILE = "store.json"
FAMILY, SCHEMA = "equimetric.gallery_store", 1
ADVICE = "restore it from a copy"


def store_class(name: str) -> Any:
    """The class of galleries with this store."""
    if name not in STORES:
        raise unknown_name("store", name, STORES)
    module, class_name = STORES[name]
    return getattr(import_module(f"equimetric.gallery.{module}"), class_name)


def is_gallery_folder(folder: Path) -> bool:
    """Whether a folder holds a gallery."""
    return (folder / MANIFEST).is_file() or (folder / FILE).is_file()


@dataclass(frozen=True)
class StoreRecord:
    """The store of a gallery whose items are outside of its folder's files; one with a manifest is embedded.

    store     the name of the store
    tasks     tasks of its certificates, which are files TASK.json; the first decides
    identity  metadata column that names the identity of an item; None: its id
    options   options of the store, such as url and collection
    """

    store: str
    tasks: tuple[str, ...]
    identity: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> StoreRecord:
        """The record of the gallery in a folder."""
        file = folder / FILE
        if (folder / MANIFEST).is_file() or not file.is_file():
            manifest = Manifest.read(folder)
            return cls(EMBEDDED, manifest.tasks, manifest.identity)
        document = read_json(file, dict, ADVICE)
        family, _, version = str(document.pop("schema", None)).partition("/")
        if family != FAMILY or not version.isdecimal() or int(version) > SCHEMA:
            raise EquimetricError(f"{str(file)!r} is of no schema that this version reads; upgrade equimetric")
        try:
            return cls(**{**document, "tasks": tuple(document["tasks"])})
        except (KeyError, TypeError, ValueError) as problem:
            raise DamagedFileError(f"{file} is damaged ({problem})", ADVICE) from None

    def write(self, folder: Path) -> None:
        """Put the record into the folder of a gallery."""
        write_atomically(folder / FILE, json_document({"schema": f"{FAMILY}/{SCHEMA}", **asdict(self)}, indent=2))
