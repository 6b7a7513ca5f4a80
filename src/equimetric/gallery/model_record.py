"""`model.json` in the folder of a gallery: which model made its vectors, and where that model is."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from equimetric.checksums import json_document, read_json
from equimetric.errors import DamagedFileError
from equimetric.files import write_atomically

__all__ = ["ModelRecord"]

FILE = "model.json"
FAMILY, SCHEMA = "equimetric.gallery_model", 1
ADVICE = "remove it, and give the model's folder"


@dataclass(frozen=True)
class ModelRecord:
    """The exported model of a gallery.

    model          sha256 that identifies the network
    preprocessing  how images reach it, in words
    runtime        its arithmetic, float32 or int8
    folder         where it was when the gallery was made
    relative       the same place, from the gallery's folder: both may be moved together
    """

    model: str
    preprocessing: str
    runtime: str
    folder: str
    relative: str

    @classmethod
    def from_model(cls, gallery: Path, *, model: str, preprocessing: str, runtime: str, folder: Path) -> ModelRecord:
        """The record of a model for the gallery in a folder."""
        return cls(model, preprocessing, runtime, *_describe_place(folder, gallery))

    @classmethod
    def read(cls, gallery: Path) -> ModelRecord | None:
        """The record in the folder of a gallery; None where there is none."""
        file = gallery / FILE
        if not file.exists():
            return None
        document = read_json(file, dict, ADVICE)
        try:
            if document.pop("schema") != f"{FAMILY}/{SCHEMA}":
                raise ValueError("its schema is unknown")
            return cls(**document)
        except (KeyError, TypeError, ValueError) as problem:
            raise DamagedFileError(f"{file} is damaged ({problem})", ADVICE) from None

    def write(self, gallery: Path) -> None:
        """Put the record into the folder of a gallery."""
        write_atomically(gallery / FILE, json_document({"schema": f"{FAMILY}/{SCHEMA}", **asdict(self)}, indent=2))

    def move(self, gallery: Path, other: Path) -> ModelRecord:
        """The record for a copy of the gallery in another folder."""
        found = self.find(gallery)
        if found is None:
            return self
        folder, relative = _describe_place(found, other)
        return replace(self, folder=folder, relative=relative)

    def find(self, gallery: Path) -> Path | None:
        """The model's folder as seen from the gallery's, or where it was; None where both are gone."""
        places = ((gallery / self.relative).resolve(), Path(self.folder))
        return next((place for place in places if place.is_dir()), None)


def _describe_place(folder: Path, gallery: Path) -> tuple[str, str]:
    """Where a folder is, and the same as seen from a gallery."""
    place = folder.resolve()
    return str(place), Path(os.path.relpath(place, gallery.resolve())).as_posix()
