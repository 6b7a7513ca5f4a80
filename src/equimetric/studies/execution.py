"""Execute the runs of a study in parallel worker processes."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

from equimetric.errors import EquimetricError
from equimetric.runs.folder import RunFolder
from equimetric.studies.jobs import Job

__all__ = ["Watcher", "find_unfinished", "ignore_progress", "run_all"]

Watcher = Callable[[Job, int, Mapping[str, float] | None], None]
"""Called with a job, the number of its steps so far, and its figures, which are None when it has ended."""


def ignore_progress(job: Job, step: int, figures: Mapping[str, float] | None) -> None:
    """Show nothing."""


def find_unfinished(jobs: Sequence[Job], *, retry_failed: bool) -> list[Job]:
    """Jobs without a result, and failed ones if they are to be repeated."""
    results = [(job, RunFolder(job.folder).result()) for job in jobs]
    return [job for job, result in results if result is None or (retry_failed and result.status == "failed")]


def run_all(jobs: Sequence[Job], *, workers: int, watch: Watcher) -> None:
    """Run all jobs in `workers` processes; return when all have a result."""
    waiting: queue.Queue[Job] = queue.Queue()
    for job in jobs:
        waiting.put(job)
    problems: list[BaseException] = []
    processes: list[subprocess.Popen[str]] = []

    def serve() -> None:
        try:
            # Leaving the block closes the worker's input, which ends it.
            with start_worker() as process:
                processes.append(process)
                while True:
                    follow(process, waiting.get_nowait(), watch)
        except queue.Empty:
            pass
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(workers, len(jobs)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    if problems:
        raise problems[0]


def start_worker() -> subprocess.Popen[str]:
    """A new interpreter that waits for jobs; it does not import the caller's script, as multiprocessing would."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "equimetric.studies.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        bufsize=1,
        env=environment,
    )


def follow(process: subprocess.Popen[str], job: Job, watch: Watcher) -> None:
    """Send a job to a worker and forward its reports until it is done."""
    assert process.stdin is not None
    assert process.stdout is not None
    watch(job, 0, {})
    process.stdin.write(json.dumps(job.to_json()) + "\n")
    process.stdin.flush()
    for line in process.stdout:
        message = json.loads(line)
        if "done" in message:
            watch(job, job.config.training.steps, None)
            return
        watch(job, message["step"], message["figures"])
    raise EquimetricError(
        f"the process of run {job.row!r}, seed {job.config.seed}, ended without a result (exit code {process.wait()}); "
        "was it killed or out of memory? Run the same command again to resume, with fewer workers if memory is short"
    )
