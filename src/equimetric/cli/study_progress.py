"""The progress of a study: bars in a terminal, a few lines where the output goes to a file."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from equimetric.cli.console import build_bar, format_metrics, literal
from equimetric.escaping import one_line
from equimetric.progress import format_seconds, share_bar

if TYPE_CHECKING:
    from rich.progress import TaskID

    from equimetric.studies.jobs import Job
    from equimetric.studies.plan import StudyPlan

__all__ = ["StudyProgress"]

SECONDS_BETWEEN_LINES = 60
"""Maximum interval between progress lines without a terminal."""


class StudyProgress:
    """A bar for the study and one for each active run; a run that ends becomes a line, so that log files show it too.

    A search has one line at its end, not one per trial. The time left follows from the steps of the last minutes.
    """

    def __init__(self) -> None:
        self.progress = build_bar(estimate_seconds=300)
        self.opened = ExitStack()
        self.plan: StudyPlan | None = None
        self.tasks: dict[str, TaskID] = {}
        self.steps: dict[str, int] = {}
        self.study: TaskID | None = None
        self.runs = self.ended = self.ended_steps = 0
        self.last_line = time.monotonic()

    def __enter__(self) -> "StudyProgress":
        self.opened.enter_context(self.progress)
        self.opened.enter_context(share_bar(self.progress))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.opened.close()

    def begin(self, plan: "StudyPlan") -> None:
        """Say what is done already and where unfinished runs continue; show the whole study as a bar."""
        from equimetric.runs.folder import RunFolder
        from equimetric.training.checkpoint import saved_step

        self.plan = plan
        self.runs, self.ended = plan.count_runs(), plan.count_ended()
        if self.ended == self.runs:
            return
        resumed = []
        for row in plan.rows:
            for job in plan.ready_jobs(row):
                step = saved_step(RunFolder(job.folder)) if job.key.role == "final" else None
                if step:
                    self.steps[job.key.content] = step
                    resumed.append(f"{label(job)} continues at step {step:,}")
        if self.ended or resumed:
            self.say("; ".join([f"{self.ended} of {self.runs} runs are done", *resumed]))
        steps = plan.study.training.steps
        self.ended_steps = steps * self.ended
        self.study = self.progress.add_task("", total=steps * self.runs, metrics="")
        self.show_study()

    def watch(self, job: "Job", step: int, metrics: Mapping[str, float] | None) -> None:
        """Show the steps of a run, and its score and time when it has ended."""
        name = job.key.content
        if name not in self.tasks:
            self.tasks[name] = self.progress.add_task(label(job), total=job.steps or None, metrics="")
        if metrics is None:
            self.end_run(job)
        elif step:
            self.steps[name] = step
            self.progress.update(self.tasks[name], completed=step, metrics=format_metrics(metrics))
            self.show_study()
        if self.progress.disable and time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
            share = (
                f"{label(job)} at {step / job.steps:.0%}; " if job.probe and metrics is not None and job.steps else ""
            )
            self.say(share + self.summary())

    def end_run(self, job: "Job") -> None:
        """Replace the bar of a run by a line."""
        assert self.plan is not None
        self.progress.remove_task(self.tasks.pop(job.key.content))
        self.steps.pop(job.key.content, None)
        self.ended_steps += self.plan.study.training.steps
        self.ended += 1
        self.show_study()
        text = describe_end(self.plan, job)
        if text:
            self.say(f"{text} ({self.summary()})")

    def show_study(self) -> None:
        """Update the bar of the study."""
        if self.study is not None:
            description = f"{self.ended} of {self.runs} runs"
            completed = self.ended_steps + sum(self.steps.values())
            self.progress.update(self.study, description=description, completed=completed)

    def summary(self) -> str:
        """'3 of 7 runs, about 3 min left'."""
        parts = [f"{self.ended} of {self.runs} runs"]
        for task in self.progress.tasks:
            if task.id == self.study and task.total and not task.finished and task.time_remaining:
                parts.append(f"about {format_seconds(task.time_remaining)} left")
        return ", ".join(parts)

    def say(self, text: str) -> None:
        """Print a line above the bars, on standard error."""
        self.last_line = time.monotonic()
        self.progress.console.print(literal(one_line(text)), soft_wrap=True)


def label(job: "Job") -> str:
    """'contrastive, seed 1', 'contrastive, trial 3, fold 2', 'contrastive, seed 1, folds joined'."""
    key = job.key
    parts = [job.row, *([job.point] if job.point else [])]
    parts.append(f"seed {key.seed}" if key.trial is None else f"trial {key.trial}")
    if key.role == "joined":
        parts.append("folds joined")
    elif key.trial is not None or (key.fold > 0 and key.role != "baseline"):
        parts.append(f"fold {key.fold}")
    return one_line(", ".join(parts))


def describe_end(plan: "StudyPlan", job: "Job") -> str:
    """'finished contrastive, seed 1: map@r 56.12%, 14 s'; of a search, its end; '' for other trials."""
    from equimetric.evaluation import format_score
    from equimetric.studies.table import format_duration

    outcome, metric = plan.index.outcomes[job.key.content], job.config.evaluation.selected_by
    if job.key.trial is not None:
        row = plan.rows[job.row]
        tuned = plan.search_choice(row) if plan.is_tuned(row) else None
        if tuned is None:
            return f"failed {label(job)}: {outcome.error}" if outcome.status == "failed" else ""
        chosen = ", ".join(
            f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}"
            for name, value in tuned.params.items()
        )
        score = format_score(metric, tuned.score).strip()
        return f"tuned {job.row}: {chosen} (trial {tuned.trial} of {tuned.trials}, validation {metric} {score})"
    if outcome.status == "failed":
        return f"failed {label(job)}: {outcome.error or 'no reason was recorded'}"
    scores = [f"{metric} {format_score(metric, outcome.metrics[metric]).strip()}"] if metric in outcome.metrics else []
    times = [format_duration(outcome.seconds)] if outcome.steps else []
    return f"finished {label(job)}: {', '.join([*scores, *times])}"
