"""A small study in a process of its own, what it left, and what must not be left."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

STUDY = """
name = "small"
seeds = [0, 1]
workers = 2
baselines = ["untrained"]
data = { name = "features", options = { file = "FILE" } }
model.dim = 4
batch = { classes = 3, samples = 3 }
training = { steps = 40, validate_every = 20, log_every = 3, checkpoint_seconds = 0 }
methods.contrastive = {}
methods.proxy_nca = {}
"""

CHANGING = ("seconds", "memory", "checksum", "files")
"""Keys of a result that differ between repetitions."""


def write_study(folder: Path, **changes: object) -> Path:
    """The file of a study of feature vectors; overrides are dotted keys."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(16), 12)
    vectors = (generator.normal(size=(16, 12))[labels] + generator.normal(size=(len(labels), 12))).astype(np.float32)
    np.savez(folder / "features.npz", features=vectors, labels=labels)
    file = folder / "study.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in changes.items()]
    file.write_text("\n".join([*lines, STUDY.replace("FILE", str(folder / "features.npz"))]))
    return file


def start(file: Path, output: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """`equimetric compare` in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "equimetric", "compare", str(file), "--output", str(output), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
        # A shell lets what it starts in the background ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(file: Path, output: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`equimetric compare` to its end."""
    process = start(file, output, *arguments, **environment)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def contents(study: Path) -> dict[str, object]:
    """Everything that a study found, without times: results, logs, weights, scores of queries."""
    found: dict[str, object] = {}
    for file in sorted(study.glob("*/*-*/*")):
        name = str(file.relative_to(study))
        if file.name == "result.json":
            result = json.loads(file.read_text())
            found[name] = {key: value for key, value in result.items() if key not in CHANGING}
        elif file.name == "metrics.jsonl":
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            found[name] = [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
        elif file.name == "model.safetensors":
            found[name] = file.read_bytes()
        elif file.name == "per_query.npz":
            with np.load(file) as arrays:
                found[name] = {key: value.tolist() for key, value in arrays.items()}
    return found


def left_behind(study: Path) -> list[str]:
    """Files that only a running study needs: temporary ones, checkpoints, damaged runs, locks that are held."""
    left = []
    for file in study.rglob("*"):
        if file.name == ".lock":
            with file.open("r+b") as opened:
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    left.append(f"held: {file}")
        elif file.name.startswith((".", "checkpoint", "damaged")):
            left.append(str(file))
    return left


def processes_of(session: int) -> list[int]:
    """The processes of a session that are still there."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def wait_until(condition, seconds: float = 120.0) -> bool:
    """Whether a condition became true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
