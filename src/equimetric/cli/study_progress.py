"""The progress of a study: bars in a terminal, a few lines where the output goes to a file."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from equimetric.cli.console import build_bar, format_figures, literal
from equimetric.escaping import one_line
from equimetric.progress import format_seconds, share_bar

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import TaskID

    from equimetric.studies.jobs import Job

__all__ = ["StudyProgress"]

SECONDS_BETWEEN_LINES = 60
"""Without a terminal, where no run ends meanwhile."""


class StudyProgress:
    """A bar for the study and one for each active run; a run that ends becomes a line, so that log files show it too.

    The time left follows from the steps of the last minutes.
    """

    def __init__(self) -> None:
        self.progress = build_bar(estimate_seconds=300)
        self.opened = ExitStack()
        self.tasks: dict[Path, TaskID] = {}
        self.steps: dict[Path, int] = {}
        self.study: TaskID | None = None
        self.runs = self.ended = 0
        self.last_line = time.monotonic()
        # Each worker process has a thread that reports.
        self.lock = threading.RLock()

    def __enter__(self) -> "StudyProgress":
        self.opened.enter_context(self.progress)
        self.opened.enter_context(share_bar(self.progress))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.opened.close()

    def begin(self, jobs: "Sequence[Job]", missing: "Sequence[Job]") -> None:
        """Say what is done already and where unfinished runs continue; show the whole study as a bar."""
        from equimetric.runs.folder import RunFolder
        from equimetric.training.checkpoint import saved_step

        self.runs, self.ended = len(jobs), len(jobs) - len(missing)
        self.steps = {job.folder: saved_step(RunFolder(job.folder)) or 0 for job in missing}
        begun = [f"{label(job)} continues at step {step:,}" for job in missing if (step := self.steps[job.folder])]
        if missing and (self.ended or begun):
            self.say("; ".join([f"{self.ended} of {self.runs} runs are done", *begun]))
        if missing:
            total = sum(steps_of(job) for job in missing)
            self.study = self.progress.add_task("", total=total, completed=sum(self.steps.values()), figures="")
            self.show_study()

    def watch(self, job: "Job", step: int, figures: Mapping[str, float] | None) -> None:
        """Show the steps of a run, and its score and time when it has ended."""
        with self.lock:
            if job.folder not in self.tasks:
                self.tasks[job.folder] = self.progress.add_task(label(job), total=steps_of(job) or None, figures="")
            if figures is None:
                self.end_run(job)
            elif step:
                self.steps[job.folder] = step
                self.progress.update(self.tasks[job.folder], completed=step, figures=format_figures(figures))
                self.show_study()
                if self.progress.disable and time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
                    self.say(self.summary())

    def end_run(self, job: "Job") -> None:
        """Replace the bar of a run by a line."""
        self.progress.remove_task(self.tasks.pop(job.folder))
        self.steps[job.folder] = steps_of(job)
        self.ended += 1
        self.show_study()
        self.say(f"{describe_end(job)} ({self.summary()})")

    def show_study(self) -> None:
        """Update the bar of the study."""
        if self.study is not None:
            done = f"{self.ended} of {self.runs} runs"
            self.progress.update(self.study, description=done, completed=sum(self.steps.values()))

    def summary(self) -> str:
        """'3 of 7 runs, 1,250 of 4,200 steps, about 3 min left'."""
        parts = [f"{self.ended} of {self.runs} runs"]
        for task in self.progress.tasks:
            if task.id == self.study and task.total and not task.finished:
                parts.append(f"{task.completed:,.0f} of {task.total:,.0f} steps")
                if task.time_remaining:
                    parts.append(f"about {format_seconds(task.time_remaining)} left")
        return ", ".join(parts)

    def say(self, text: str) -> None:
        """Print a line above the bars, on standard error."""
        self.last_line = time.monotonic()
        self.progress.console.print(literal(one_line(text)), soft_wrap=True)


def label(job: "Job") -> str:
    """'contrastive, seed 1'."""
    return one_line(f"{job.row}, seed {job.config.seed}")


def steps_of(job: "Job") -> int:
    """The steps of a run; baselines take none."""
    return job.config.training.steps if job.kind == "trained" else 0


def describe_end(job: "Job") -> str:
    """'finished contrastive, seed 1: map@r 56.12%, 14 s' or 'failed contrastive, seed 1'."""
    from equimetric.evaluation import format_score
    from equimetric.studies.results import read_result
    from equimetric.studies.table import format_duration

    result = read_result(job)
    if result is None or result.status == "failed":
        return f"failed {label(job)}"
    metric = job.config.evaluation.selected_by
    scores = [f"{metric} {format_score(metric, result.metrics[metric]).strip()}"] if metric in result.metrics else []
    times = [format_duration(result.seconds)] if result.steps else []
    return f"finished {label(job)}: {', '.join([*scores, *times])}"
