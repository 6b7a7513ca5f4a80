"""The engine interface used by the scheduler: start jobs, then read their events one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from equimetric.errors import EquimetricError
from equimetric.studies.jobs import Job, RowCheck
from equimetric.studies.outcomes import ClassList, Outcome

__all__ = ["Engine", "Event", "JobEnd", "JobLost", "JobMessage", "JobProgress"]


@dataclass(frozen=True)
class JobProgress:
    """A job has taken some steps; `metrics` to show."""

    job: Job
    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class JobEnd:
    """A job has ended, successfully or not."""

    job: Job
    outcome: Outcome
    classes: ClassList | None


@dataclass(frozen=True)
class JobMessage:
    """A message of a job to the user."""

    job: Job
    text: str


@dataclass(frozen=True)
class JobLost:
    """A job's process has ended without a result; the next start does it again."""

    job: Job
    error: EquimetricError


Event: TypeAlias = JobProgress | JobEnd | JobMessage | JobLost


class Engine(Protocol):
    """Starts jobs and reports on them; a context manager that leaves nothing running behind.

    Attributes:
        slots: number of jobs that run at a time.
    """

    slots: int

    def check(self, rows: Sequence[RowCheck]) -> str:
        """What is wrong with the first row that cannot be built where jobs will run; '' if all can."""

    def start(self, job: Job) -> None:
        """Begin a job; the caller starts no more than `slots` at a time."""

    def next_event(self) -> Event:
        """Wait for the next event of a running job; raises an error where nothing can be written."""

    def stop(self) -> None:
        """Ask all jobs to stop after their current step, with a checkpoint, and wait for them."""

    def close(self) -> None:
        """End everything at once."""
