"""A tiny run, what faults do to it, and whether a second start gives what an undisturbed one gives."""

import json
from pathlib import Path

from file_events import CrashError, FileEvents, watch_files

from equimetric.runs.folder import RunFolder
from equimetric.training import train

TINY = {
    "method": "margin",
    "data": {"name": "digits"},
    "model": {"dim": 4},
    "batch": {"classes": 2, "samples": 2},
    "training": {"steps": 4, "validate_every": 2, "log_every": 1, "checkpoint_seconds": 0},
}
WITHOUT_CHECKPOINTS = {**TINY, "training": {"steps": 4, "validate_every": 2, "log_every": 1}}
FROZEN = {**WITHOUT_CHECKPOINTS, "model": {"dim": 4, "frozen": True}}
DEPENDS_ON_TIME = ("seconds", "memory", "checksum", "files")


def run_with(fault, folder, config=TINY, cache=None):
    """Train with a fault; the events, and the error that came out of it."""
    events = FileEvents(folder, fault)
    patch = watch_files(events)
    try:
        train(config, folder=folder, cache=cache)
    except (CrashError, Exception) as error:
        return events, error
    finally:
        patch.undo()
    return events, None


def content_of(folder):
    """File name → content, without what depends on time; every file must be what its checksum says."""
    folder, run = Path(folder), RunFolder(Path(folder))
    assert run.result() is not None
    assert run.environment() is not None
    run.config()
    run.per_query()
    timeless = {"result.json": [json.loads((folder / "result.json").read_text())], "metrics.jsonl": run.history()}
    content = {file.name: file.read_bytes() for file in folder.iterdir() if file.name not in (*timeless, ".lock")}
    for name, records in timeless.items():
        content[name] = [{key: one[key] for key in one if key not in DEPENDS_ON_TIME} for one in records]
    return content
