"""The index of a study: an append-only file with a line for every planned run and for every run that ended.

It is the single record of a study. Every line holds its own checksum: a truncated or damaged line is skipped, and its
run is repeated. One process writes; it reads the file once.
"""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from equimetric.errors import EquimetricError, StorageError
from equimetric.files import ends_with_newline, explain_write_error, make_folder, write_atomically
from equimetric.runs.key import RunKey
from equimetric.studies.outcomes import ClassList, Outcome

__all__ = ["INDEX", "PlannedRun", "StudyIndex", "planned_run_key", "require_inside"]

INDEX = "index.jsonl"
INDEX_VERSION = 1


@dataclass(frozen=True)
class PlannedRun:
    """A final run of the current study: its key, the point of a sweep, and its folder below the study's."""

    key: RunKey
    point: str
    folder: str


class StudyIndex:
    """The planned and finished runs of a study.

    Attributes:
        planned: the runs of the current study, in the order in which they were planned.
        outcomes: the ends of runs, by the hash of what determined them; also of runs that are no longer planned.
        class_lists: the test classes behind scores of classes.
        searches: row → identity of its current search.
        trials: row and search → trial → fold → outcome; also of former searches.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / INDEX
        self.planned: dict[tuple[str, str, str], PlannedRun] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.class_lists: dict[str, ClassList] = {}
        self.searches: dict[str, str] = {}
        self.trials: dict[tuple[str, str], dict[int, dict[int, Outcome]]] = {}
        for values in self._lines():
            self._take(values)

    def begin(self, searches: Mapping[str, str]) -> None:
        """Forget the planned runs, and rewrite the file without superseded lines."""
        self.planned.clear()
        self.searches = dict(searches)
        lines = [format_line({"index": INDEX_VERSION}), format_line({"searches": self.searches})]
        lines += [format_line({"classes": asdict(class_list)}) for class_list in self.class_lists.values()]
        lines += [format_line({"outcome": outcome.to_json()}) for outcome in self.outcomes.values()]
        self._write_whole("".join(lines))

    def plan(self, runs: Iterable[PlannedRun]) -> None:
        """Add runs to the current study."""
        new = [run for run in runs if planned_run_key(run) not in self.planned]
        self.planned |= {planned_run_key(run): run for run in new}
        self._append({"planned": asdict(run)} for run in new)

    def record(self, outcome: Outcome, classes: ClassList | None = None) -> None:
        """Add the end of a run; it is on the disk when this returns."""
        lines: list[dict[str, Any]] = []
        if classes is not None and classes.identity not in self.class_lists:
            self.class_lists[classes.identity] = classes
            lines.append({"classes": asdict(classes)})
        self._keep(outcome)
        self._append([*lines, {"outcome": outcome.to_json()}])

    def trials_of(self, row: str) -> dict[int, dict[int, Outcome]]:
        """Trial → fold → outcome of a row's current search."""
        return self.trials.get((row, self.searches.get(row, "")), {})

    def forget(self, content: str) -> None:
        """Drop the outcome of a run whose folder is damaged, or that is to be repeated."""
        if content in self.outcomes:
            self._drop(content)
            self._append([{"forget": content}])

    def _keep(self, outcome: Outcome) -> None:
        key = outcome.key
        self.outcomes[key.content] = outcome
        if key.trial is not None:
            self.trials.setdefault((key.method, outcome.search), {}).setdefault(key.trial, {})[key.fold] = outcome

    def _drop(self, content: str) -> None:
        outcome = self.outcomes.pop(content, None)
        if outcome is not None and outcome.key.trial is not None:
            del self.trials[outcome.key.method, outcome.search][outcome.key.trial][outcome.key.fold]

    def _take(self, values: Mapping[str, Any]) -> None:
        if "planned" in values:
            run = PlannedRun(**{**values["planned"], "key": RunKey(**values["planned"]["key"])})
            require_inside(self.file, run.folder)
            self.planned[planned_run_key(run)] = run
        elif "outcome" in values:
            self._keep(Outcome.from_json(values["outcome"]))
        elif "classes" in values:
            class_list = ClassList(**{name: tuple(value) for name, value in values["classes"].items()})
            self.class_lists[class_list.identity] = class_list
        elif "searches" in values:
            self.searches = values["searches"]
        elif "forget" in values:
            self._drop(values["forget"])
        elif values.get("index", INDEX_VERSION) > INDEX_VERSION:
            raise EquimetricError(f"{self.file} was written by a newer version of Equimetric; upgrade to read it")

    def _lines(self) -> Iterator[dict[str, Any]]:
        """The intact lines of the file."""
        try:
            content = self.file.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"{self.file} cannot be read: {error.strerror}; make it readable") from None
        lines = content.split(b"\n")
        # After the last newline there is nothing, or a line that a crash cut off.
        valid = [values for line in lines if (values := parse_line(line)) is not None]
        damaged = sum(map(bool, lines)) - len(valid)
        if damaged:
            warnings.warn(
                f"{self.file} is damaged in {damaged} of {len(valid) + damaged} lines, and what they stood for is left "
                "out; run `equimetric compare` with the study's file again: it keeps the finished runs",
                stacklevel=3,
            )
        yield from valid

    def _append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        text = "".join(map(format_line, lines))
        if not text:
            return
        try:
            make_folder(self.file.parent)
            with self.file.open("ab") as file:
                # A line that a crash cut off must not swallow the next one.
                if file.tell() and not ends_with_newline(self.file):
                    file.write(b"\n")
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._cannot_write(error) from error

    def _write_whole(self, text: str) -> None:
        try:
            write_atomically(self.file, text)
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> StorageError:
        return StorageError(
            f"cannot write {str(self.file)!r}: {explain_write_error(error)}; nothing finished is lost: make it "
            "writable, with space left, and run the same command again"
        )


def require_inside(file: Path, folder: str) -> None:
    """Raise an error where an index names a folder that is not below the study's own."""
    path = Path(folder)
    if path.is_absolute() or ".." in path.parts:
        raise EquimetricError(
            f"{file} names a folder outside of the study, {folder!r}; run `equimetric compare` with the study's file "
            "again: it keeps the finished runs"
        )


def planned_run_key(run: PlannedRun) -> tuple[str, str, str]:
    """The identity of a planned run: the same run may fill several cells at different points of a sweep."""
    return run.key.content, run.point, run.key.method


def format_line(values: Mapping[str, Any]) -> str:
    """A line of the index: the checksum of the rest, then JSON."""
    text = json.dumps(values, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}\n"


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The values of a line; None where its checksum does not match."""
    head, _, text = line.partition(b" ")
    try:
        if int(head, 16) != zlib.crc32(text):
            return None
        values = json.loads(text)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None
