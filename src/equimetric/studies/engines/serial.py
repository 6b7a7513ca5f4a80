"""Jobs in the calling process, one after the other: for debuggers, and where processes cannot be started."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence

from equimetric.studies.engines.engine import Event, JobEnd, JobProgress
from equimetric.studies.jobs import Job, RowCheck, run_job

__all__ = ["SerialEngine"]


class SerialEngine:
    """Runs a job when its end is requested."""

    slots = 1

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.job: Job | None = None

    def check(self, rows: Sequence[RowCheck]) -> str:  # noqa: ARG002
        """Nothing: the caller has built them in this process."""
        return ""

    def start(self, job: Job) -> None:
        """Store the job to run."""
        self.job = job

    def next_event(self) -> Event:
        """Run the job; its steps are the events before its end."""
        if self.job is not None:
            job, self.job = self.job, None

            def report(step: int, metrics: Mapping[str, float]) -> None:
                self.events.put(JobProgress(job, step, metrics))

            self.events.put(JobEnd(job, *run_job(job, report)))
        return self.events.get()

    def stop(self) -> None:
        """Nothing runs beside the caller."""

    def close(self) -> None:
        """Nothing to end."""
