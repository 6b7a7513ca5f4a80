"""Jobs as tasks of a Ray cluster.

Nodes need this package and the data under the same paths; they share no folder with the caller. A task trains in a
folder of its own and returns the files of its run, which the caller writes: the index and the run folders are the same
as of any other engine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from equimetric.errors import EquimetricError, StorageError
from equimetric.files import write_atomically
from equimetric.ray_clusters import connect_ray
from equimetric.runs.folder import RESULT
from equimetric.studies.engines.engine import Event, JobEnd, JobLost
from equimetric.studies.jobs import Job, RowCheck, build_rows, run_job
from equimetric.studies.outcomes import ClassList, Outcome

__all__ = ["RayEngine"]

Files = Mapping[str, bytes]


class RayEngine:
    """Ray Core tasks of one processor each, on the cluster of RAY_ADDRESS, or on a local one that is started."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.connection = ExitStack()
        self.ray = self.connection.enter_context(connect_ray(slots))
        self.task = self.ray.remote(num_cpus=1, max_retries=0)(run_remote_job)
        self.running: dict[Any, Job] = {}

    def check(self, rows: Sequence[RowCheck]) -> str:
        """Build rows in a task."""
        task = self.ray.remote(num_cpus=1, max_retries=0)(build_rows)
        try:
            answer: str = self.ray.get(task.remote([row.to_json() for row in rows]))
        except self.ray.exceptions.RayError as error:
            answer = f"a task that builds the methods failed: {str(error).strip().splitlines()[-1]}"
        return answer

    def start(self, job: Job) -> None:
        """Submit a job, with the files of the runs that it joins."""
        members = [read_files(folder) for folder in job.members]
        self.running[self.task.remote(job.to_json(), members)] = job

    def next_event(self) -> Event:
        """Wait until a task ends."""
        done, _ = self.ray.wait(list(self.running), num_returns=1)
        job = self.running.pop(done[0])
        try:
            reply = self.ray.get(done[0])
        except self.ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            problem = f"the task of run {job.row!r}, seed {job.config.seed}, ended without a result"
            return JobLost(job, EquimetricError(f"{problem}: {reason}; run the same command again to resume"))
        if "cannot_write" in reply:
            raise StorageError(reply["cannot_write"])
        if job.has_folder:
            write_files(job.folder, reply["files"])
        classes = reply["classes"]
        class_list = ClassList(**{name: tuple(value) for name, value in classes.items()}) if classes else None
        return JobEnd(job, Outcome.from_json(reply["outcome"]), class_list)

    def stop(self) -> None:
        """Cancel all tasks; what they did is done again at the next start."""
        for task in self.running:
            with suppress(self.ray.exceptions.RayError):
                self.ray.cancel(task, force=True)
        self.running.clear()

    def close(self) -> None:
        """Leave the cluster, if this engine joined it."""
        self.connection.close()


def run_remote_job(values: Mapping[str, Any], members: Sequence[Files]) -> dict[str, Any]:
    """Run a job in a temporary folder; returns its outcome and the files of its run."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    job = Job.from_json(values)
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / f"member{i}" for i in range(len(members))]
        for folder, files in zip(folders, members, strict=True):
            write_files(folder, files)
        run_folder = Path(scratch) / "run"
        try:
            outcome, classes = run_job(replace(job, folder=run_folder, members=tuple(folders)))
        except StorageError as error:
            return {"cannot_write": str(error)}
        files = read_files(run_folder) if job.has_folder else {}
    return {"outcome": outcome.to_json(), "classes": asdict(classes) if classes else None, "files": files}


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a run's folder by name."""
    files = (file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    return {file.name: file.read_bytes() for file in files}


def write_files(folder: Path, files: Files) -> None:
    """Write the files of a run, its result last: a run without it has not ended."""
    for name in sorted(files, key=lambda name: name == RESULT):
        write_atomically(folder / name, files[name])
