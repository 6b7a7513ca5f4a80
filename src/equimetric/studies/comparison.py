"""A fair comparison from its configuration to its table and report; resumable at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equimetric.configuration import StudyConfig, load_config
from equimetric.errors import EquimetricError
from equimetric.studies.execution import Watcher, run_all, unfinished
from equimetric.studies.jobs import Job, check_study, plan
from equimetric.studies.records import StudyRecord
from equimetric.studies.store import load_study, save_study
from equimetric.studies.table import ComparisonTable, comparison_table
from equimetric.training.loop import load_split

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A finished comparison: `print` it for the table; `folder` holds every run."""

    record: StudyRecord
    folder: Path

    @property
    def table(self) -> ComparisonTable:
        """The comparison table as data."""
        return comparison_table(self.record)

    def __str__(self) -> str:
        lines = [self.table.headings, *(self.table.texts(row) for row in self.table.rows)]
        widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def __repr__(self) -> str:
        return f"Comparison({self.record.name!r}, {len(self.record.runs)} runs, {str(self.folder)!r})"


def compare(
    study: StudyConfig | Mapping[str, Any] | str | Path,
    *,
    output: str | Path = "runs",
    overrides: Mapping[str, Any] | None = None,
    retry_failed: bool = False,
    watch: Watcher | None = None,
) -> Comparison:
    """Train every method with every seed under equal conditions; the result holds the table and prints as it.

    `study` is a TOML file, a mapping or a `StudyConfig`. Run again, only what is missing is done; a killed study goes
    on where it stood, to the same table. A run that fails is reported as failed and stops no other.
    """
    config = load_config(study, StudyConfig, overrides)
    dataset, split = load_split(config.data)
    jobs = plan(config, Path(output), dataset.fingerprint)
    check_study(jobs, dataset, split)
    folder = Path(output) / config.name
    try:
        save_study(folder, config, dataset.fingerprint)
    except OSError as error:
        raise EquimetricError(f"cannot write to the study folder {str(folder)!r}: {error.strerror}") from None
    run_all(
        unfinished(jobs, retry_failed=retry_failed),
        workers=config.workers,
        watch=watch or nobody_watches,
    )
    return Comparison(load_study(folder), folder)


def nobody_watches(job: Job, step: int, figures: Mapping[str, float] | None) -> None:
    """Show nothing."""
