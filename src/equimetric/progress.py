"""Progress of slow work: a bar with the time left in a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

from equimetric.escaping import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["format_seconds", "print_status", "set_progress_output", "share_bar", "show_progress", "track"]

Item = TypeVar("Item")
Advance = Callable[[int], None]

SECONDS_BETWEEN_LINES = 10.0

_output: Literal["bar", "lines", "nothing"] = "bar"
_shared_bar: Bar | None = None


def set_progress_output(output: Literal["bar", "lines", "nothing"]) -> None:
    """Choose what slow work shows on standard error, for the rest of the process.

    'bar', the default of the library, is a bar in a terminal and nothing in a log; 'lines', for commands, adds lines in
    a log; 'nothing' is for processes whose parent has a bar of its own.
    """
    global _output
    _output = output


@contextmanager
def share_bar(bar: Bar) -> Iterator[Bar]:
    """Show the progress of all work inside the block in this bar: two bars at once would overwrite each other."""
    global _shared_bar
    previous, _shared_bar = _shared_bar, bar
    try:
        yield bar
    finally:
        _shared_bar = previous


def track(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """Yield the items and show how many have been used."""
    with show_progress(description, total) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def show_progress(description: str, total: int, *, completed: int = 0, quiet: bool = False) -> Iterator[Advance]:
    """Show work of `total` units, of which some are completed already; call the result with those completed since."""
    if quiet or not is_shown():
        yield lambda _: None
    elif not sys.stderr.isatty():
        lines = ProgressLines(description, total, completed)
        yield lines.advance
        lines.finish()
    else:
        with _open_bar() as bar:
            task = bar.add_task(printable(description), total=total, completed=completed, figures="")
            try:
                yield lambda units: bar.advance(task, units)
            finally:
                bar.remove_task(task)


def print_status(sentence: str) -> None:
    """Print a sentence about slow work, where its progress would be shown."""
    if not is_shown():
        return
    if _shared_bar is not None and not _shared_bar.disable:
        _shared_bar.console.print(printable(sentence), markup=False, highlight=False)
    else:
        print(printable(sentence), file=sys.stderr, flush=True)


def is_shown() -> bool:
    """Whether slow work shows anything."""
    return _output == "lines" or (_output == "bar" and sys.stderr.isatty())


class ProgressLines:
    """Progress as lines of text, one every few seconds: work that is done before the first one prints nothing."""

    def __init__(self, description: str, total: int, completed: int) -> None:
        self.description = description
        self.total = total
        self.completed = self.start_count = completed
        self.start_time = self.last = time.monotonic()

    def advance(self, units: int) -> None:
        """Count further units, and print a line where it is time."""
        self.completed += units
        now = time.monotonic()
        if now - self.last < SECONDS_BETWEEN_LINES:
            return
        self.last = now
        speed = (self.completed - self.start_count) / (now - self.start_time)
        remaining = f", about {format_seconds((self.total - self.completed) / speed)} left" if speed else ""
        progress = f"{self.completed:,} of {self.total:,} ({self.completed / max(self.total, 1):.0%})"
        print_status(f"{self.description}: {progress}{remaining}")

    def finish(self) -> None:
        """Print how long it took, if there was a line before."""
        if self.last > self.start_time:
            print_status(f"{self.description}: done after {format_seconds(time.monotonic() - self.start_time)}")


def format_seconds(seconds: float) -> str:
    """'45 s', '12 min', '3 h 05 min', '9 days', '31 weeks'."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    days = seconds / 86_400
    if days < 3:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{days:.0f} days" if days < 21 else f"{days / 7:,.0f} weeks"


@contextmanager
def _open_bar() -> Iterator[Bar]:
    """The bar that is shown already, or one of its own."""
    if _shared_bar is not None and not _shared_bar.disable:
        yield _shared_bar
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar
