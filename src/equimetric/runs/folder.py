"""The folder of a run: configuration, environment, log, per-query scores, profile, result and weights."""

import json
import os
import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equimetric.checksums import Checksum, checksum, has_content, json_document, read_json, toml_document
from equimetric.code_version import code_fingerprint
from equimetric.configuration import load_stored_config, to_toml
from equimetric.errors import DamagedFileError, EquimetricError, StorageError
from equimetric.file_hashes import read_stamp
from equimetric.files import explain_write_error, sync_file, sync_folder, write_atomically
from equimetric.plugins import describe_missing
from equimetric.runs.access import acquire_lock, first_missing, remove_files, remove_folders
from equimetric.runs.configuration import RunConfig
from equimetric.runs.key import PROTOCOL_VERSION, RunKey, run_parts
from equimetric.runs.result import RunResult

__all__ = ["RunFolder", "WrittenFile", "changed_parts", "describe_environment", "missing_parts"]

CONFIG, RESULT = "config.toml", "result.json"
WEIGHTS, FROZEN_WEIGHTS = "model.safetensors", "backbone.safetensors"
PER_QUERY, PROFILE, LOG = "per_query.npz", "profile.npz", "metrics.jsonl"
ADVICE = "remove the run's folder and run it again: this run is trained anew, no other"

OWN_PARTS = "plugins"
"""Key of the environment: name → hash of every component of the user's own that the run depends on."""

PLUGIN_TEXT = "plugin-"
"""Begins the names of files with the text of plug-ins: for readers, never executed."""

PROGRESS_FILES = ("checkpoint.json", RESULT, WEIGHTS)
"""Files of a run that has made progress: from its first checkpoint on."""

START_FILES = (CONFIG, "environment.json", LOG, ".lock")
"""Files that a start writes before there is any progress."""


def describe_environment(data_fingerprint: str, key: RunKey) -> dict[str, Any]:
    """Versions and hardware behind a result, and the key of the run."""
    return {"key": asdict(key), **describe_machine(), "data_fingerprint": data_fingerprint}


@cache
def describe_machine() -> dict[str, Any]:
    """Versions and hardware, constant while a process lives."""
    return {
        "equimetric": version("equimetric"),
        "code": code_fingerprint(),
        "protocol": PROTOCOL_VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@dataclass(frozen=True)
class WrittenFile:
    """A file of a run's folder as it was written."""

    path: Path
    checksum: Checksum
    mtime_ns: int


def changed_parts(environment: Mapping[str, Any], config: RunConfig) -> str:
    """What of the components of the user's own is no longer as a run had it; '' where all of them are the same.

    Those that are not loaded here are not compared.
    """
    then, now = environment.get(OWN_PARTS) or {}, run_parts(config).contents
    changed = [name for name in now if name in then and then[name] != now[name]]
    return f"another version of {', '.join(map(repr, changed))}, of which it keeps the text" if changed else ""


def missing_parts(environment: Mapping[str, Any], config: RunConfig) -> str:
    """Which components of the user's own a run had that are not loaded here, and how to load them; '' where all are."""
    now = run_parts(config).contents
    names = [name for name in environment.get(OWN_PARTS) or {} if name not in now]
    if not names:
        return ""
    return describe_missing(config.plugins) or (
        f"it was trained with {', '.join(map(repr, names))} of a script or module that is not imported here; import it "
        "first, or put the definition into a file and name that in `plugins`"
    )


class RunFolder:
    """One run's folder; every file is written atomically, except the log, which only grows.

    Documents carry their own checksum. The result has the checksums of weights, per-query scores and log, a checkpoint
    those of its tensors and of the log so far. A file that is not what was written raises `DamagedFileError`.

    With `writes=False` nothing is written: of several processes that train together only one does.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path = path
        self.writes = writes
        self.written: dict[str, Checksum] = {}
        self.unsynced: list[str] = []

    def prepare(self, config: RunConfig, data_fingerprint: str, key: RunKey) -> None:
        """Write configuration and environment before the run starts; synced with the first progress."""
        self.write_config(config, sync=False)
        environment = describe_environment(data_fingerprint, key)
        parts = run_parts(config)
        if parts.contents:
            environment[OWN_PARTS] = dict(parts.contents)
        for name, text in parts.texts().items():
            self.write(f"{PLUGIN_TEXT}{name}.txt", text, sync=False)
        self.write("environment.json", json_document(environment, indent=2), sync=False)

    def write_config(self, config: RunConfig, *, sync: bool = True) -> None:
        """Write the complete configuration."""
        self.write(CONFIG, toml_document(to_toml(config)), sync=sync)

    def config(self) -> RunConfig:
        """The configuration."""
        advice = "run the command that trained it again: it writes the file anew"
        return load_stored_config(self.path / CONFIG, RunConfig, advice)

    def environment(self) -> dict[str, Any] | None:
        """The record of versions, hardware and key; None in a folder without a run."""
        file = self.path / "environment.json"
        return read_json(file, dict, ADVICE) if file.exists() else None

    def holds(self, key: RunKey) -> bool:
        """Whether the folder was prepared for exactly this run."""
        return ((self.environment() or {}).get("key") or {}).get("content") == key.content

    def require(self, key: RunKey, data_fingerprint: str, config: RunConfig) -> None:
        """Raise an error where the folder holds another run; a start without progress is none."""
        if not self.has_progress():
            return
        environment = self.environment()
        if self.holds(key):
            return
        if environment is None:
            if (self.path / WEIGHTS).exists():
                raise EquimetricError(
                    f"{str(self.path)!r} holds a run without its environment.json; choose another folder or remove it"
                )
            return
        if "key" not in environment:
            difference = "of an older version of Equimetric, which can be loaded but not continued"
        elif environment["data_fingerprint"] != data_fingerprint:
            difference = "with other data"
        elif changed := changed_parts(environment, config):
            difference = f"with {changed}"
        else:
            difference = "with another configuration or other initial weights"
        raise EquimetricError(f"{str(self.path)!r} holds a run {difference}; choose another folder or remove it")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other processes; the operating system releases it even after a kill.

        A start that fails before there is any progress leaves no files behind.
        """
        if not self.writes:
            yield
            return
        topmost = first_missing(self.path) or self.path
        existing = {file.name for file in self.path.glob(f"{PLUGIN_TEXT}*.txt")}
        written = [file for name in START_FILES if not (file := self.path / name).exists()]
        with self.explain_write_errors():
            lock = acquire_lock(self.path / ".lock")
        try:
            yield
        finally:
            try:
                if not self.has_begun():
                    texts = [file for file in self.path.glob(f"{PLUGIN_TEXT}*.txt") if file.name not in existing]
                    remove_files([*written, *texts])
                    remove_folders(self.path, topmost)
            finally:
                os.close(lock)

    def require_parts(self, config: RunConfig) -> None:
        """Raise an error where the run cannot be repeated: a component of the user's own is missing, or has changed."""
        environment = self.environment() or {}
        missing, changed = missing_parts(environment, config), changed_parts(environment, config)
        if missing or changed:
            reason = missing or f"it was trained with {changed}; restore that version"
            raise EquimetricError(f"the run in {str(self.path)!r} cannot be repeated: {reason}")

    def has_progress(self) -> bool:
        """Whether the folder holds more than the start of a run."""
        return any((self.path / name).exists() for name in PROGRESS_FILES)

    def has_begun(self) -> bool:
        """Whether the folder holds progress, or a log that explains why there is none."""
        log = read_stamp(self.path / LOG)
        return self.has_progress() or (log is not None and log.size > 0)

    @contextmanager
    def explain_write_errors(self) -> Iterator[None]:
        """Turn a failed write into one sentence."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"cannot write to the run folder {str(self.path)!r}: {explain_write_error(error)}; nothing finished is "
                "lost: make it writable, with space left, and run the same command again"
            ) from error

    def write(self, name: str, content: str | bytes, *, sync: bool = True) -> None:
        """Write a file of the folder; without `sync` it is on the disk only after `sync_all`."""
        if self.writes:
            with self.explain_write_errors():
                write_atomically(self.path / name, content, sync=sync)
            self.written[name] = checksum(content.encode() if isinstance(content, str) else content)
            self.unsynced += [] if sync else [name]

    def link(self, name: str, source: WrittenFile) -> bool:
        """Hard-link a file of the folder to one that another run has written.

        False where that file has changed or is gone, or where the file system has no hard links.
        """
        stamp = read_stamp(source.path)
        if stamp is None or (stamp.size, stamp.mtime_ns) != (source.checksum["bytes"], source.mtime_ns):
            return False
        with suppress(OSError):
            (self.path / name).unlink(missing_ok=True)
            os.link(source.path, self.path / name)
            self.written[name] = source.checksum
            return True
        return False

    def describe(self, name: str) -> WrittenFile:
        """A file that this run has written."""
        stat = (self.path / name).stat()
        return WrittenFile(self.path / name, self.written[name], stat.st_mtime_ns)

    def sync_all(self) -> None:
        """Sync the files that were written without `sync`."""
        if self.unsynced:
            with self.explain_write_errors():
                for name in self.unsynced:
                    sync_file(self.path / name)
                sync_folder(self.path)
            self.unsynced = []

    def remove(self, *names: str) -> None:
        """Remove files for good."""
        if self.writes and names:
            with self.explain_write_errors():
                for name in names:
                    (self.path / name).unlink(missing_ok=True)
                sync_folder(self.path)

    def read(self, name: str, expected: Checksum | None, advice: str = ADVICE) -> bytes:
        """The content of a file, checked where its checksum is known."""
        file = self.path / name
        try:
            content = file.read_bytes()
        except OSError as error:
            raise DamagedFileError(f"{file} cannot be read ({error.strerror})", advice) from None
        if expected is None:
            return content
        if not has_content(content, expected):
            raise DamagedFileError(f"{file} is damaged (its checksum does not match)", advice)
        return content[: expected["bytes"]]

    def result(self) -> RunResult | None:
        """The result, or None while there is none."""
        file = self.path / RESULT
        if not file.exists():
            return None
        values = read_json(file, dict, ADVICE)
        values.pop("files", None)
        return RunResult.parse(values, str(file))

    def require_result(self) -> RunResult:
        """The result of a run that has ended."""
        result = self.result()
        if result is None:
            raise EquimetricError(f"the run in {str(self.path)!r} has not ended; train it first")
        return result

    def write_result(self, result: RunResult) -> None:
        """Write the result; its presence marks a run as finished."""
        files: dict[str, Checksum] = {}
        if result.status == "done":
            names = (WEIGHTS, FROZEN_WEIGHTS, PER_QUERY, PROFILE)
            files = {name: self.written[name] for name in names if name in self.written}
            files[LOG] = self.sync_log()
        self.sync_all()
        self.write(RESULT, json_document({**json.loads(result.to_json()), "files": files}, indent=2))

    def expected_checksum(self, name: str) -> Checksum | None:
        """The checksum of a file of a finished run, where the result has it."""
        file = self.path / RESULT
        files: dict[str, Checksum] = read_json(file, dict, ADVICE).get("files", {}) if file.exists() else {}
        return files.get(name)

    def write_per_query(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write per-query scores and neighbours."""
        self.write_arrays(PER_QUERY, arrays)

    def has_per_query(self) -> bool:
        """Whether there are per-query scores."""
        return (self.path / PER_QUERY).exists()

    def per_query(self) -> dict[str, np.ndarray[Any, Any]]:
        """Per-query scores and neighbours of a finished run."""
        return self.read_arrays(PER_QUERY)

    def write_profile(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write the profile of the test classes for a report: see `RunProfile`."""
        self.write_arrays(PROFILE, arrays)

    def profile(self) -> dict[str, np.ndarray[Any, Any]] | None:
        """The arrays of the run's profile; None where it has none."""
        return self.read_arrays(PROFILE) if (self.path / PROFILE).exists() else None

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write arrays, compressed; on the disk with the result."""
        buffer = BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        self.write(name, buffer.getvalue(), sync=False)

    def read_arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays of a finished run."""
        content = self.read(name, self.expected_checksum(name))
        try:
            with np.load(BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # a damaged archive can raise almost anything
            raise DamagedFileError(f"{self.path / name} is damaged ({error})", ADVICE) from None

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a line to the log."""
        if self.writes:
            with self.explain_write_errors(), (self.path / LOG).open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def sync_log(self) -> Checksum:
        """Sync the log; gives the checksum of its content."""
        file = self.path / LOG
        if not file.exists():
            return checksum(b"")
        with self.explain_write_errors(), file.open("rb") as opened:
            os.fsync(opened.fileno())
            return checksum(opened.read())

    def cut_log(self, size: int, expected: Checksum | None = None) -> None:
        """Drop the lines after a checkpoint, which a resumed run writes again, or an incomplete last line.

        A log that differs from the checkpoint's record costs nothing but lines of the log, so it is only a warning.
        """
        file = self.path / LOG
        if not self.writes or (size == 0 and not file.exists()):
            return
        with self.explain_write_errors():
            file.touch()
            with file.open("r+b") as opened:
                content = opened.read()
                new_size = size if len(content) >= size else content.rfind(b"\n") + 1
                opened.truncate(new_size)
        if new_size < size or (expected is not None and not has_content(content, expected)):
            warnings.warn(
                f"{file} is damaged: lines are missing or changed; the run resumes, and ends with the same result. To "
                "have the whole log, remove the run's folder and run it again",
                stacklevel=2,
            )

    def history(self) -> list[dict[str, Any]]:
        """All lines of the log."""
        if not (self.path / LOG).exists():
            return []
        lines = []
        for line in self.read(LOG, self.expected_checksum(LOG)).decode(errors="replace").splitlines():
            # A line that a crash cut off is the last one; a resumed run writes it again.
            with suppress(ValueError):
                lines.append(json.loads(line))
        return lines
