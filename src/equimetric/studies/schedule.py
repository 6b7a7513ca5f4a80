"""Run a plan on an engine: start jobs that are ready, record those that end, queue those that become ready."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count

from equimetric.errors import DamagedFileError, EquimetricError
from equimetric.runs.damage import read_intact_result
from equimetric.runs.folder import RESULT, RunFolder
from equimetric.studies.engines import Engine, JobEnd, JobLost, JobMessage, JobProgress
from equimetric.studies.jobs import Job, describe_run
from equimetric.studies.plan import StudyPlan
from equimetric.training.checkpoint import remove_checkpoints

__all__ = ["Watcher", "execute_plan", "forget_damaged", "ignore_progress", "record_unindexed_runs"]

Watcher = Callable[[Job, int, Mapping[str, float] | None], None]
"""Called with a job, the number of its steps so far, and its metrics, which are None when it has ended."""


def ignore_progress(job: Job, step: int, metrics: Mapping[str, float] | None) -> None:
    """Show nothing."""


def execute_plan(plan: StudyPlan, engine: Engine, watch: Watcher = ignore_progress) -> None:
    """Run all remaining jobs of a study. A job whose process dies is left to the next start; the others are done."""
    waiting: list[tuple[tuple[int, int], int, Job]] = []
    tiebreak = count()
    submitted: set[str] = set()
    running = 0
    lost: list[EquimetricError] = []

    def submit_ready(rows: Iterable[str]) -> None:
        for row in rows:
            jobs = [job for job in plan.ready_jobs(row) if job.key.content not in submitted]
            plan.index.plan(plan.index_entry(job) for job in jobs if job.key.trial is None)
            submitted.update(job.key.content for job in jobs)
            for job in jobs:
                heappush(waiting, (priority(plan, job), next(tiebreak), job))

    submit_ready(plan.rows)
    while waiting or running:
        while waiting and running < engine.slots:
            _, _, job = heappop(waiting)
            watch(job, 0, {})
            engine.start(job)
            running += 1
        event = engine.next_event()
        if isinstance(event, JobProgress):
            watch(event.job, event.step, event.metrics)
        elif isinstance(event, JobMessage):
            warnings.warn(event.text, stacklevel=2)
        elif isinstance(event, JobLost):
            running -= 1
            lost.append(event.error)
        elif isinstance(event, JobEnd):
            running -= 1
            plan.index.record(event.outcome, event.classes)
            watch(event.job, event.job.steps, None)
            submit_ready(plan.dependents(event.job.row))
    if lost:
        raise lost[0]


def priority(plan: StudyPlan, job: Job) -> tuple[int, int]:
    """Baselines first, then trials, on which others wait; then seed by seed, so that all methods have some runs."""
    if job.key.trial is not None:
        return 1, job.key.trial
    return (0, 0) if job.key.role == "baseline" else (2, plan.study.seeds.index(job.key.seed))


def forget_damaged(plan: StudyPlan, *, retry_failed: bool) -> None:
    """Forget runs whose folder is gone or damaged, and failed ones that are to be repeated: they are done again."""
    for job in plan.known_jobs():
        outcome = plan.index.outcomes.get(job.key.content)
        if outcome is None or not (retry_failed or outcome.status == "done"):
            continue
        if (job.has_folder and not is_intact(job, retry_failed)) or (retry_failed and outcome.status == "failed"):
            plan.index.forget(job.key.content)


def is_intact(job: Job, retry_failed: bool) -> bool:
    """Whether the folder of a run holds its result, undamaged."""
    try:
        result = read_intact_result(RunFolder(job.folder))
    except DamagedFileError:
        return False
    except EquimetricError:
        # Intact, but of a newer version: not to be replaced.
        return True
    return result is not None and not (retry_failed and result.status == "failed")


def record_unindexed_runs(plan: StudyPlan, *, retry_failed: bool) -> None:
    """Record finished runs that the index lacks because of a crash or a damaged line."""
    for job in plan.known_jobs():
        if job.key.content in plan.index.outcomes or not (job.has_folder and (job.folder / RESULT).exists()):
            continue
        run = RunFolder(job.folder)
        try:
            result = read_intact_result(run)
        except EquimetricError:
            continue
        if result is not None and run_matches(run, job) and not (retry_failed and result.status == "failed"):
            if result.status == "done":
                # The process may have been killed after it wrote the result and before it removed them.
                remove_checkpoints(run)
            names = plan.data[job.point].dataset.class_names
            plan.index.record(*describe_run(job, run, result, names))


def run_matches(run: RunFolder, job: Job) -> bool:
    """Whether the folder was prepared for this very run; joined and failed ones are named by their hash alone."""
    return run.environment() is None or run.holds(job.key)
