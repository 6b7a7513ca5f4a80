"""Log of accesses to the test classes of a run: its own test, then every command that reads them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from equimetric.errors import EquimetricError
from equimetric.files import append_line, read_appended
from equimetric.runs.folder import RunFolder

__all__ = ["ACCESS_LOG", "RecordedAccess", "read_test_accesses", "record_test_access"]

ACCESS_LOG = "openings.jsonl"
"""One line for each access after the run's own test."""

OWN_TEST = "train"


@dataclass(frozen=True)
class RecordedAccess:
    """One access to the test classes: the command, and the date in UTC; '' for the run's own test."""

    command: str
    date: str = ""


def record_test_access(folder: Path, command: str) -> None:
    """Append an access; a folder that cannot be written is left as it is."""
    access = RecordedAccess(command, datetime.now(UTC).isoformat(timespec="seconds"))
    with suppress(OSError):
        append_line(folder / ACCESS_LOG, asdict(access))


def read_test_accesses(folder: Path) -> tuple[RecordedAccess, ...]:
    """All accesses of a run, its own test first; none for a run that was not tested, such as a trial of a search."""
    return (*own_test(folder), *recorded_accesses(folder))


def own_test(folder: Path) -> tuple[RecordedAccess, ...]:
    """The test at the end of a run, where its result has metrics of test classes."""
    with suppress(EquimetricError, OSError):
        result = RunFolder(folder).result()
        if result is not None and result.metrics:
            return (RecordedAccess(OWN_TEST),)
    return ()


def recorded_accesses(folder: Path) -> list[RecordedAccess]:
    """The lines that can be read; a line that a crash cut off is skipped: its access was never shown."""
    accesses = []
    for values in read_appended(folder / ACCESS_LOG):
        with suppress(KeyError):
            accesses.append(RecordedAccess(str(values["command"]), str(values["date"])))
    return accesses
