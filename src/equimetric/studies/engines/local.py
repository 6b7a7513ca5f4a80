"""Jobs in worker processes of this machine."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from equimetric.errors import EquimetricError, StorageError
from equimetric.studies.engines.engine import Event, JobEnd, JobLost, JobMessage, JobProgress
from equimetric.studies.jobs import Job, RowCheck
from equimetric.studies.outcomes import ClassList, Outcome
from equimetric.workers import start_interpreter

__all__ = ["LocalEngine"]

POLL_SECONDS = 0.05


@dataclass(eq=False)
class Worker:
    """A process that runs jobs, its current job, and its answers to checks, None where it has ended."""

    process: subprocess.Popen[str]
    answers: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)
    job: Job | None = None
    listener: threading.Thread | None = None


class LocalEngine:
    """Worker processes, started when they are first needed; each does one job after the other."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.workers: list[Worker] = []
        self.events: queue.SimpleQueue[Event | StorageError] = queue.SimpleQueue()

    def check(self, rows: Sequence[RowCheck]) -> str:
        """Let a worker build rows; it does jobs afterwards."""
        worker = self.idle_worker()
        self.send(worker, {"check": [row.to_json() for row in rows]})
        answer = worker.answers.get()
        if answer is None:
            return f"a worker process ended while it built the methods (exit code {worker.process.wait()})"
        return answer

    def start(self, job: Job) -> None:
        """Give a job to an idle worker, or to a new one."""
        worker = self.idle_worker()
        worker.job = job
        self.send(worker, job.to_json())

    def idle_worker(self) -> Worker:
        """A worker without a job, a new one if there is none."""
        worker = next((idle for idle in self.workers if idle.job is None and idle.process.poll() is None), None)
        if worker is None:
            worker = Worker(start_worker())
            self.workers.append(worker)
            worker.listener = threading.Thread(target=self.listen, args=[worker], daemon=True)
            worker.listener.start()
        return worker

    def send(self, worker: Worker, message: Mapping[str, Any]) -> None:
        """Send a message in one line."""
        assert worker.process.stdin is not None
        # The output of a dead worker ends, too, and its listener reports that.
        with suppress(BrokenPipeError):
            worker.process.stdin.write(json.dumps(message) + "\n")
            worker.process.stdin.flush()

    def listen(self, worker: Worker) -> None:
        """Turn what a worker writes into events, until it ends."""
        assert worker.process.stdout is not None
        with worker.process.stdout as lines:
            for line in lines:
                if worker.job is not None:
                    self.events.put(self.read(worker, worker.job, line))
                elif "checked" in (message := json.loads(line)):
                    worker.answers.put(message["checked"])
        worker.answers.put(None)
        if worker.job is not None:
            self.events.put(JobLost(worker.job, report_death(worker.job, worker.process.wait())))
            worker.job = None

    def read(self, worker: Worker, job: Job, line: str) -> Event | StorageError:
        """The event behind a line of a worker."""
        message = json.loads(line)
        if "outcome" in message:
            worker.job = None
            classes = message.get("classes")
            class_list = ClassList(**{name: tuple(value) for name, value in classes.items()}) if classes else None
            return JobEnd(job, Outcome.from_json(message["outcome"]), class_list)
        if "cannot_write" in message:
            worker.job = None
            return StorageError(message["cannot_write"])
        if "notice" in message:
            return JobMessage(job, message["notice"])
        return JobProgress(job, message["step"], message["metrics"])

    def next_event(self) -> Event:
        """Wait for the next event."""
        event = self.events.get()
        if isinstance(event, StorageError):
            raise event
        return event

    def stop(self) -> None:
        """Let every worker stop after its current step; a second signal ends the waiting."""
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            # A worker that ended its job before it saw the signal would wait for the next job.
            while worker.job is not None and worker.process.poll() is None:
                time.sleep(POLL_SECONDS)
            worker.process.kill()
            worker.process.wait()

    def close(self) -> None:
        """End every worker: idle ones by closing their input, others at once."""
        for worker in self.workers:
            if worker.process.stdin is not None:
                with suppress(BrokenPipeError):
                    worker.process.stdin.close()
            if worker.job is not None and worker.process.poll() is None:
                worker.process.kill()
        for worker in self.workers:
            worker.process.wait()
            if worker.listener is not None:
                worker.listener.join()


def report_death(job: Job, exit_code: int) -> EquimetricError:
    """The error for a worker that ended without a result."""
    return EquimetricError(
        f"the process of run {job.row!r}, seed {job.config.seed}, ended without a result (exit code {exit_code}); "
        "was it killed or out of memory? Run the same command again to resume, with fewer workers if memory is short"
    )


def start_worker() -> subprocess.Popen[str]:
    """A new process that waits for jobs, one in a line."""
    return start_interpreter("equimetric.studies.worker", text=True, encoding="utf-8", bufsize=1)
