"""The folder of a run: configuration, environment, log, per-query scores, result and weights."""

import errno
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equimetric.configuration import to_toml
from equimetric.errors import EquimetricError, StorageError
from equimetric.files import read_json, write_atomically
from equimetric.runs.access import acquire_lock, first_missing, remove_files, remove_folders
from equimetric.runs.configuration import RunConfig
from equimetric.runs.key import PROTOCOL_VERSION, RunKey
from equimetric.runs.result import RunResult

__all__ = ["RunFolder", "describe_environment"]

PROGRESS = ("checkpoint.json", "result.json", "model.safetensors")
"""Files of a run that has begun: from the checkpoint before its first step on."""

OF_A_START = ("config.toml", "environment.json", "metrics.jsonl", ".lock")
"""What a start writes before there is any progress."""


def describe_environment(data_fingerprint: str, key: RunKey) -> dict[str, Any]:
    """Versions and hardware behind a result, and what identifies the run."""
    return {
        "key": asdict(key),
        "equimetric": version("equimetric"),
        "protocol": PROTOCOL_VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "data_fingerprint": data_fingerprint,
    }


class RunFolder:
    """One run's folder; every file is written atomically, except the log, which only grows.

    With `writes=False` nothing is written: of several processes that train together only one does.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path = path
        self.writes = writes

    def prepare(self, config: RunConfig, data_fingerprint: str, key: RunKey) -> None:
        """Write what is known before the run starts."""
        self.write("config.toml", to_toml(config))
        self.write("environment.json", json.dumps(describe_environment(data_fingerprint, key), indent=2))

    def environment(self) -> dict[str, Any] | None:
        """What `prepare` wrote, or None in a folder without a run."""
        file = self.path / "environment.json"
        if not file.exists():
            return None
        return read_json(file, dict, "remove the run's folder and run it again")

    def holds(self, key: RunKey) -> bool:
        """Whether the folder was prepared for this very run."""
        return ((self.environment() or {}).get("key") or {}).get("content") == key.content

    def require(self, key: RunKey, data_fingerprint: str) -> None:
        """Raise an error where the folder holds another run; a start without progress is none."""
        if not self.has_progress():
            return
        environment = self.environment()
        if self.holds(key):
            return
        if environment is None:
            if (self.path / "model.safetensors").exists():
                raise EquimetricError(
                    f"{str(self.path)!r} holds a run without its environment.json; choose another folder or remove it"
                )
            return
        if "key" not in environment:
            other = "of an older version of Equimetric, which can be loaded but not continued"
        elif environment["data_fingerprint"] != data_fingerprint:
            other = "with other data"
        else:
            other = "with another configuration or other initial weights"
        raise EquimetricError(f"{str(self.path)!r} holds a run {other}; choose another folder or remove it")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other processes; the operating system releases it even after a kill.

        A start that fails before there is any progress leaves nothing behind.
        """
        if not self.writes:
            yield
            return
        topmost = first_missing(self.path) or self.path
        written = [file for name in OF_A_START if not (file := self.path / name).exists()]
        with self.explain_write_errors():
            lock = acquire_lock(self.path / ".lock")
        try:
            yield
        finally:
            try:
                if not self.has_progress():
                    remove_files(written)
                    remove_folders(self.path, topmost)
            finally:
                os.close(lock)

    def has_progress(self) -> bool:
        """Whether the folder holds more than the start of a run."""
        return any((self.path / name).exists() for name in PROGRESS)

    @contextmanager
    def explain_write_errors(self) -> Iterator[None]:
        """Turn a failed write into one sentence."""
        try:
            yield
        except OSError as error:
            why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
            raise StorageError(
                f"cannot write to the run folder {str(self.path)!r}: {why}; nothing finished is lost: "
                "make it writable, with space left, and run the same command again"
            ) from error

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the folder."""
        if self.writes:
            with self.explain_write_errors():
                write_atomically(self.path / name, content)

    def result(self) -> RunResult | None:
        """The result, or None while there is none."""
        file = self.path / "result.json"
        if not file.exists():
            return None
        return RunResult.parse(read_json(file, dict, "remove the run's folder and run it again"), str(file))

    def write_result(self, result: RunResult) -> None:
        """Write the result; its presence is what marks a run as finished."""
        self.write("result.json", result.to_json())

    def write_per_query(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write per-query scores and neighbours."""
        buffer = BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        self.write("per_query.npz", buffer.getvalue())

    def has_per_query(self) -> bool:
        """Whether per-query scores are there."""
        return (self.path / "per_query.npz").exists()

    def per_query(self) -> dict[str, np.ndarray[Any, Any]]:
        """Per-query scores and neighbours."""
        with (self.path / "per_query.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a line to the log."""
        if self.writes:
            with self.explain_write_errors(), (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def log_size(self) -> int:
        """Bytes in the log."""
        file = self.path / "metrics.jsonl"
        return file.stat().st_size if file.exists() else 0

    def truncate_log(self, size: int) -> None:
        """Drop the lines after a checkpoint; a resumed run writes them again."""
        file = self.path / "metrics.jsonl"
        if self.writes and file.exists():
            with self.explain_write_errors(), file.open("r+b") as opened:
                opened.truncate(size)

    def history(self) -> list[dict[str, Any]]:
        """All lines of the log."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        lines = []
        for line in file.read_text(encoding="utf-8").splitlines():
            # A line that a crash cut off is the last one; a resumed run writes it again.
            with suppress(ValueError):
                lines.append(json.loads(line))
        return lines
