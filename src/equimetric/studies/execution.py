"""Execute the runs of a study in parallel worker processes."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence

from equimetric.errors import EquimetricError, StorageError
from equimetric.studies.jobs import Job

__all__ = ["Watcher", "ignore_progress", "run_all"]

Watcher = Callable[[Job, int, Mapping[str, float] | None], None]
"""Called with a job, the number of its steps so far, and its figures, which are None when it has ended."""


def ignore_progress(job: Job, step: int, figures: Mapping[str, float] | None) -> None:
    """Show nothing."""


def run_all(jobs: Sequence[Job], *, workers: int, watch: Watcher) -> None:
    """Run all jobs in `workers` processes; return when all have a result.

    A worker that dies leaves its run to the next start, and the others do the rest. Where a run cannot be written, or
    a signal interrupts the caller, all stop: each after its current step, with a checkpoint.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    problems: list[BaseException] = []
    processes: list[subprocess.Popen[str]] = []
    stopping = threading.Event()

    def stop() -> None:
        stopping.set()
        for process in processes:
            process.terminate()

    def serve(process: subprocess.Popen[str]) -> None:
        try:
            # Leaving the block closes the worker's input, which ends it.
            with process:
                while not stopping.is_set():
                    follow(process, waiting.get_nowait(), watch)
        except queue.Empty:
            pass
        except BaseException as error:
            # What workers say while they are being stopped is no cause.
            if not stopping.is_set():
                problems.append(error)
            if isinstance(error, StorageError):
                stop()

    try:
        for _ in range(min(workers, len(jobs))):
            processes.append(start_worker())
        threads = [threading.Thread(target=serve, args=[process], daemon=True) for process in processes]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            stop()
            # A second signal ends the waiting.
            for process in processes:
                process.wait()
            raise
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    if problems:
        raise problems[0]


def start_worker() -> subprocess.Popen[str]:
    """A new interpreter that waits for jobs; it does not import the caller's script, as multiprocessing would.

    A terminal sends Ctrl-C to all its processes. Workers do not receive it: their parent stops them.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "equimetric.studies.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            bufsize=1,
            env=environment,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow(process: subprocess.Popen[str], job: Job, watch: Watcher) -> None:
    """Send a job to a worker and forward its reports until it is done."""
    assert process.stdin is not None
    assert process.stdout is not None
    watch(job, 0, {})
    try:
        process.stdin.write(json.dumps(job.to_json()) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # The worker is dead: its output has ended, too.
    for line in process.stdout:
        message = json.loads(line)
        if "done" in message:
            watch(job, job.config.training.steps, None)
            return
        if "cannot_write" in message:
            raise StorageError(message["cannot_write"])
        if "notice" in message:
            warnings.warn(message["notice"], stacklevel=2)
        else:
            watch(job, message["step"], message["figures"])
    raise EquimetricError(
        f"the process of run {job.row!r}, seed {job.config.seed}, ended without a result (exit code {process.wait()}); "
        "was it killed or out of memory? Run the same command again to resume, with fewer workers if memory is short"
    )
