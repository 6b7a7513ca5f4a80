"""What a run leaves on disk: configuration, environment, log, per-query scores, result and weights."""

import errno
import fcntl
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equimetric.configuration import RunConfig, to_toml
from equimetric.errors import EquimetricError
from equimetric.files import write_atomically

__all__ = ["PROTOCOL_VERSION", "RESULT_SCHEMA", "RunFolder", "describe_environment", "run_hash"]

PROTOCOL_VERSION = 1
"""Raised whenever the same configuration would give other numbers; old results then stand beside new ones."""

RESULT_SCHEMA = 1


def run_hash(config: RunConfig, data_fingerprint: str) -> str:
    """What identifies a run: everything that determines its result."""
    determining = config.model_dump(exclude={"logging"})
    content = {"config": determining, "data": data_fingerprint, "protocol": PROTOCOL_VERSION}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def describe_environment(data_fingerprint: str) -> dict[str, Any]:
    """Versions and hardware behind a result."""
    return {
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

    def prepare(self, config: RunConfig, data_fingerprint: str) -> None:
        """Write what is known before the run starts."""
        self.write("config.toml", to_toml(config))
        self.write("environment.json", json.dumps(describe_environment(data_fingerprint), indent=2))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other processes; the operating system lets go even after a kill."""
        if not self.writes:
            yield
            return
        with self.writing():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        with lock as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Say in one sentence what it means when something cannot be written."""
        try:
            yield
        except OSError as error:
            why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
            raise EquimetricError(
                f"cannot write to the run folder {str(self.path)!r}: {why}; nothing finished is lost: "
                "make it writable, with space left, and run the same command again"
            ) from error

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the folder."""
        if self.writes:
            with self.writing():
                write_atomically(self.path / name, content)

    def data_fingerprint(self) -> str:
        """Of the data that the run was prepared for."""
        environment = json.loads((self.path / "environment.json").read_text(encoding="utf-8"))
        return str(environment["data_fingerprint"])

    def result(self) -> dict[str, Any] | None:
        """The result, or None while there is none."""
        file = self.path / "result.json"
        if not file.exists():
            return None
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if result.get("schema", 0) > RESULT_SCHEMA:
            raise EquimetricError(f"{file} was written by a newer version of Equimetric; upgrade to read it")
        return result

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the result; its presence is what marks a run as finished."""
        self.write("result.json", json.dumps({"schema": RESULT_SCHEMA, **result}, indent=2))

    def write_per_query(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write per-query scores and neighbours."""
        buffer = BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        self.write("per_query.npz", buffer.getvalue())

    def per_query(self) -> dict[str, np.ndarray[Any, Any]]:
        """Per-query scores and neighbours."""
        with np.load(self.path / "per_query.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a line to the log."""
        if self.writes:
            with self.writing(), (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def log_size(self) -> int:
        """Bytes in the log."""
        file = self.path / "metrics.jsonl"
        return file.stat().st_size if file.exists() else 0

    def truncate_log(self, size: int) -> None:
        """Forget the lines after a checkpoint; they are written again when the run goes on from there."""
        file = self.path / "metrics.jsonl"
        if self.writes and file.exists():
            with self.writing(), file.open("r+b") as opened:
                opened.truncate(size)

    def history(self) -> list[dict[str, Any]]:
        """All lines of the log."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
