"""Shared by the commands: printing to the terminal, and the progress bar."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from equimetric.escaping import name_text, one_line, printable
from equimetric.progress import share_bar

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from equimetric.studies.records import StudyRecord

__all__ = [
    "build_bar",
    "build_table",
    "console",
    "format_metrics",
    "literal",
    "progress_bar",
    "show",
    "show_error",
    "show_failures",
    "show_notes",
    "show_page",
    "show_path",
]

console = Console()

ONLY_IN_THE_REPORT = ("accuracy", "improvement", "probe", "published", "thresholds", "training", "ledger", "classes")
"""Beginnings of the names of tables that the terminal does not show."""


def literal(text: str, style: str = "") -> Text:
    """Text as it is: no markup such as [bold], no terminal escapes. All names and paths of users pass through here."""
    return Text(printable(text), style=style)


def show(text: str, style: str = "", *, wrap: bool = False) -> None:
    """Print text literally; prose wraps at words, while paths and tables keep their lines."""
    console.print(literal(text, style), soft_wrap=not wrap)


def show_path(label: str, path: Path) -> None:
    """Print where something was written."""
    show(f"{label}: {name_text(str(path))}")


def show_page(page: Path) -> None:
    """Print where a page was written, and where its tables are."""
    show_path("\nReport", page)
    show("Open it in a browser; its tables lie beside it.", style="dim")


def show_error(message: str) -> None:
    """Print a message of the command line on standard error, in one line whatever names it contains."""
    typer.echo(name_text(f"equimetric: {' '.join(line.strip() for line in message.splitlines())}"), err=True)


def build_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> "Table":
    """A table whose cells are shown literally; the first column is never broken."""
    from rich.table import Column, Table

    first, *other_headings = (literal(one_line(heading)) for heading in headings)
    table = Table(Column(first, no_wrap=True), *(Column(heading, overflow="fold") for heading in other_headings))
    for row in rows:
        table.add_row(*map(literal, row))
    return table


def show_failures(study: "StudyRecord") -> None:
    """One line on standard error for each failed run, with the reason."""
    for run in study.runs:
        if run.status == "failed":
            reason = one_line(run.error or "no reason was recorded")
            show_error(f"{run.method}, seed {run.seed} failed: {reason}")


def show_tables(study: "StudyRecord") -> None:
    """The tables of a study that are its own; those of the literature and of probes are in its report."""
    from equimetric.report import print_table, study_tables

    for name, table in study_tables(study).items():
        if not name.startswith(ONLY_IN_THE_REPORT):
            print_table(table, console)


def show_notes(study: "StudyRecord") -> None:
    """The notes of runs, each as a paragraph."""
    for runs, note in study.grouped_notes:
        show(one_line(f"{runs}: {note}"), wrap=True)


@contextmanager
def progress_bar() -> "Iterator[Progress]":
    """A progress bar on standard error, silent where that is not a terminal; slow work inside shows itself in it."""
    with build_bar() as bar, share_bar(bar):
        yield bar


def build_bar(estimate_seconds: float = 30) -> "Progress":
    """A progress bar; the time left follows from the speed in the last `estimate_seconds`."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    errors = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        console=errors,
        transient=True,
        speed_estimate_period=estimate_seconds,
        disable=not errors.is_terminal,
    )


def format_metrics(figures: Mapping[str, float]) -> str:
    """'loss 0.412  best map@r 0.561  images/s 1650'."""
    return "  ".join(
        f"{name} {value:.0f}" if value >= 100 else f"{name} {value:.3f}" for name, value in figures.items()
    )
