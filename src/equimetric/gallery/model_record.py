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
        return cls(model, preprocessing, runtime, *_describe_folder(folder, gallery))

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

    def move(self, gallery: Path, new_gallery: Path) -> ModelRecord:
        """The record for a copy of the gallery in another folder."""
        model_folder = self.find(gallery)
        if model_folder is None:
            return self
        folder, relative = _describe_folder(model_folder, new_gallery)
        return replace(self, folder=folder, relative=relative)

    def find(self, gallery: Path) -> Path | None:
        """The model's folder relative to the gallery's, or its recorded path; None where neither exists."""
        candidates = ((gallery / self.relative).resolve(), Path(self.folder))
        return next((folder for folder in candidates if folder.is_dir()), None)


def _describe_folder(folder: Path, gallery: Path) -> tuple[str, str]:
    """Absolute path of a folder, and its path relative to a gallery."""
    path = folder.resolve()
    return str(path), Path(os.path.relpath(path, gallery.resolve())).as_posix()
