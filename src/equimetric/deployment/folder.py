"""The folder of an exported model: its files, their checksums, and the checks that bind certificate to model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equimetric.calibration import Certificate, IdentificationCertificate
from equimetric.checksums import Checksum, checksum, read_json
from equimetric.deployment.embedder import AnyCertificate
from equimetric.deployment.preprocessing import Preprocessing
from equimetric.deployment.runtimes import Arithmetic
from equimetric.errors import DamagedFileError, EquimetricError

__all__ = ["ModelFolder", "is_model_folder"]

CONFIG, CARD = "config.json", "README.md"
WEIGHTS, PROGRAM, ONNX, ONNX_INT8 = "model.safetensors", "model.pt2", "model.onnx", "model.int8.onnx"
PREPROCESS, CERTIFICATE = "preprocess.json", "certificate.json"
COHORT, CANARIES = "cohort.safetensors", "canaries.safetensors"

FAMILY, SCHEMA = "equimetric.model", 1
ADVICE = "export the run again"


def is_model_folder(folder: Path) -> bool:
    """Whether a folder holds an exported model."""
    try:
        document = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and str(document.get("schema", "")).startswith(f"{FAMILY}/")


@dataclass(frozen=True)
class ModelFolder:
    """An exported model on disk; files are verified by their checksums when read.

    path    the folder
    config  contents of config.json: facts of the model, and the checksums of the other files
    """

    path: Path
    config: Mapping[str, Any]

    @classmethod
    def open(cls, path: Path) -> ModelFolder:
        """A folder that `equimetric export` wrote."""
        if not (path / CONFIG).is_file():
            raise EquimetricError(
                f"there is no exported model in {str(path)!r}; write one with: equimetric export RUN FOLDER"
            )
        config = read_json(path / CONFIG, dict, ADVICE)
        family, _, version = str(config.get("schema")).partition("/")
        if family != FAMILY or not version.isdecimal():
            raise EquimetricError(f"{str(path)!r} holds no model of `equimetric export`; give its folder")
        if int(version) > SCHEMA:
            raise EquimetricError(
                f"the model in {str(path)!r} has schema {version}, this version reads {SCHEMA}; upgrade equimetric"
            )
        missing = [name for name in ("model", "arithmetic", "dim", "outputs", "files") if name not in config]
        if missing:
            raise DamagedFileError(f"{path / CONFIG} is damaged ({missing[0]!r} is missing)", ADVICE)
        return cls(path, config)

    @property
    def model(self) -> str:
        """sha256 that identifies the network."""
        return str(self.config["model"])

    @property
    def arithmetic(self) -> Arithmetic:
        """float32 or int8."""
        return "int8" if self.config["arithmetic"] == "int8" else "float32"

    @property
    def onnx(self) -> str:
        """The file with the ONNX graph."""
        return ONNX_INT8 if self.arithmetic == "int8" else ONNX

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the network's outputs."""
        return tuple(self.config["outputs"])

    def has(self, name: str) -> bool:
        """Whether the model was exported with a file, and it is still there."""
        return name in self.config["files"] and (self.path / name).is_file()

    def read(self, name: str) -> bytes:
        """The content of a file of the model; raises an error where its checksum differs."""
        expected: Checksum | None = self.config["files"].get(name)
        if expected is None:
            raise EquimetricError(f"the model in {str(self.path)!r} was exported without {name}; {ADVICE}")
        try:
            content = (self.path / name).read_bytes()
        except OSError as error:
            raise DamagedFileError(f"{self.path / name} cannot be read ({error.strerror})", ADVICE) from None
        actual = checksum(content)
        if actual != expected:
            raise DamagedFileError(
                f"{self.path / name} is not the file that was exported (sha256 {actual['sha256'][:12]}…, not "
                f"{expected['sha256'][:12]}…), so the certificate does not hold for it",
                f"restore the file, or {ADVICE}",
            )
        return content

    def preprocessing(self) -> Preprocessing:
        """The preprocessing of images; raises an error where it is not the certified one."""
        file = self.path / PREPROCESS
        try:
            preprocessing = Preprocessing.from_dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, EquimetricError) as error:
            raise DamagedFileError(f"{file} is damaged ({error})", ADVICE) from None
        certified = str(self.config["preprocessing"])
        if preprocessing.description != certified:
            raise EquimetricError(
                f"the preprocessing in {str(file)!r} is {preprocessing.description!r}, and the model was exported and "
                f"certified with {certified!r}; restore the file, or {ADVICE}"
            )
        self.read(PREPROCESS)
        return preprocessing

    def certificate(self, preprocessing: Preprocessing) -> AnyCertificate | None:
        """The certificate, which must be bound to this model; None where the model was exported without one."""
        if CERTIFICATE not in self.config["files"]:
            return None
        file = self.path / CERTIFICATE
        certificate = read_any_certificate(file)
        facts = {
            "model": (certificate.model, self.model),
            "preprocessing": (certificate.preprocessing, preprocessing.description),
            "dimension": (certificate.data.dimension, self.config["dim"]),
            "arithmetic": (certificate.runtime, self.arithmetic),
            "task": (certificate.task, self.config["task"]),
        }
        for name, (certified, actual) in facts.items():
            if certified != actual:
                raise EquimetricError(
                    f"the certificate {str(file)!r} is for the {name} {certified!r}, and this model has {actual!r}; "
                    f"its threshold means nothing here: restore the file, or {ADVICE}"
                )
        self.read(CERTIFICATE)
        return certificate


def read_any_certificate(file: Path) -> AnyCertificate:
    """A certificate of verification or of identification."""
    try:
        task = json.loads(file.read_text(encoding="utf-8")).get("task")
    except (OSError, ValueError, AttributeError):
        task = None  # said by the reader below
    return IdentificationCertificate.load(file) if task == "identification" else Certificate.load(file)
