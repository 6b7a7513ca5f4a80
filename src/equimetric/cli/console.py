"""What the commands share: the console and the progress of a study."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from equimetric.studies.execution import Watcher
from equimetric.studies.jobs import Job

__all__ = ["console", "progress_bar", "study_progress"]

console = Console()


def progress_bar() -> Progress:
    """A progress bar on standard error that stays silent where that is not a terminal."""
    errors = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )


def as_text(figures: Mapping[str, float]) -> str:
    """'loss 0.412  best map@r 0.561  images/s 1650'."""
    return "  ".join(
        f"{name} {value:.0f}" if value >= 100 else f"{name} {value:.3f}" for name, value in figures.items()
    )


@contextmanager
def study_progress() -> Iterator[Watcher]:
    """A bar for each run at work; ended runs become lines, so that a log file shows them too."""
    with progress_bar() as progress:
        tasks = {}

        def watch(job: Job, step: int, figures: Mapping[str, float] | None) -> None:
            label = f"{job.row}, seed {job.config.seed}"
            if job.folder not in tasks:
                total = job.config.training.steps if job.kind == "trained" else None
                tasks[job.folder] = progress.add_task(label, total=total, figures="")
            task = tasks[job.folder]
            if figures is None:
                progress.remove_task(task)
                progress.console.print(f"finished {label}", highlight=False)
            else:
                progress.update(task, completed=step, figures=as_text(figures))

        yield watch
