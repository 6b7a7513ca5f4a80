"""A fair comparison, from its configuration to its table; resumable at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equimetric.configuration import load_config
from equimetric.errors import StorageError
from equimetric.runs.access import require_writable
from equimetric.runs.data import load_run_data
from equimetric.runs.image_size import fit_images
from equimetric.runs.regimes import fit_to_data
from equimetric.stopping import Stopped, stop_on_signals
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.execution import Watcher, ignore_progress, run_all
from equimetric.studies.extraction import extract_features
from equimetric.studies.jobs import Job, check_study, choose_baselines, plan
from equimetric.studies.records import StudyRecord
from equimetric.studies.results import needs_training
from equimetric.studies.store import load_study, save_study
from equimetric.studies.table import ComparisonTable, comparison_table
from equimetric.training.preconditions import warn_if_not_augmented

__all__ = ["Comparison", "compare"]

Beginning = Callable[[Sequence[Job], Sequence[Job]], None]
"""Called once before anything trains, with all runs of a study and those that are still to do."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """A finished comparison: `print` shows the table; `folder` holds all runs."""

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
    begin: Beginning | None = None,
    watch: Watcher | None = None,
) -> Comparison:
    """Train every method with every seed under equal conditions; the result prints as a table.

    `study` is a TOML file, a mapping or a `StudyConfig`. Called again, it trains only the missing runs; a
    killed study resumes where it stopped and gives the same table. A failed run is reported and stops no other.
    SIGINT and SIGTERM stop all runs after their current step, each with a checkpoint.
    """
    config = fit_images(load_config(study, StudyConfig, overrides))
    folder = Path(output) / config.name
    require_writable(folder, "study folder")
    warn_if_not_augmented(config)
    data = load_run_data(config.data, model=config.model)
    config = fit_to_data(choose_baselines(config, data), data.shape)
    jobs = plan(config, Path(output), data.fingerprint)
    check_study(jobs, data)
    try:
        save_study(folder, config, data.fingerprint, jobs)
    except OSError as error:
        raise StorageError(f"cannot write to the study folder {str(folder)!r}: {error.strerror}") from None
    missing = [job for job in jobs if needs_training(job, retry_failed=retry_failed)]
    if begin:
        begin(jobs, missing)
    try:
        with stop_on_signals():
            extract_features(missing, data)
            run_all(missing, workers=config.workers, watch=watch or ignore_progress)
    except Stopped as stop:
        raise Stopped(stop.number, f"stopped; {count_finished(jobs)}; run the same command again to resume") from None
    except StorageError as error:
        raise StorageError(f"{error} ({count_finished(jobs)})") from error
    return Comparison(load_study(folder), folder)


def count_finished(jobs: Sequence[Job]) -> str:
    """'8 of 19 runs are finished'."""
    finished = sum(not needs_training(job, retry_failed=False) for job in jobs)
    return f"{finished} of {len(jobs)} runs are finished"
