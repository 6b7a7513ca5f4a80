"""Retrain the first run of every row of a study whose run folders are gone, for the detailed sections of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Any

from equimetric.checksums import read_json
from equimetric.errors import EquimetricError, unknown_name
from equimetric.runs.data import load_run_data
from equimetric.runs.folder import RunFolder, describe_environment
from equimetric.runs.run_cache import RunCache
from equimetric.studies.index import PlannedRun
from equimetric.studies.outcomes import Outcome
from equimetric.studies.reproduction import Reproduction, changes, scores
from equimetric.studies.rows import BASE, list_rows, run_config
from equimetric.studies.store import ADVICE, DATA_OPTIONS_PREFIX, locate_data, read_index, require_study
from equimetric.training import train

__all__ = ["RetrainedRow", "describe_retrained", "retrain_rows"]

Progress = Callable[[str, int, int], None]
"""Called after every step with the row, the steps taken, and all steps."""


@dataclass(frozen=True)
class RetrainedRow:
    """A row whose first run was trained again, and how its scores compare with those of the index."""

    row: str
    reproduction: Reproduction

    def __str__(self) -> str:
        return f"{self.row}: {self.reproduction}"


def retrain_rows(
    study_folder: Path,
    runs: Path,
    located: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    *,
    only: Sequence[str] = (),
) -> Iterator[RetrainedRow]:
    """Train the first finished run of every row into `runs`, each in its folder there, with a profile.

    The study's own folder is only read. `located` are keys `data.options.…` that say where the data are now. A run that
    is there already is not trained again. `only` restricts the rows.
    """
    require_study(study_folder)
    stored, index = read_index(study_folder)
    study = locate_data(stored, located)
    data = load_run_data(study.data)
    expected = read_json(study_folder / "data.json", dict, ADVICE).get("fingerprint")
    if data.fingerprint != expected:
        raise EquimetricError(
            f"the data have the fingerprint {data.fingerprint}, those of the study had {expected}; say where the same "
            f"images and labels are, by keys such as --{DATA_OPTIONS_PREFIX}file"
        )
    cache, rows = RunCache(), list_rows(study)
    runs_by_row = first_runs(index.planned.values(), index.outcomes)
    for name in only:
        if name not in runs_by_row:
            raise unknown_name("row", name, runs_by_row)
    for row, (planned, outcome) in runs_by_row.items():
        if only and row not in only:
            continue
        key = planned.key
        config = run_config(study, rows[row], seed=key.seed, fold=key.fold, params=outcome.params)

        def show(step: int, _: Mapping[str, float], row: str = row, steps: int = config.training.steps) -> None:
            if progress:
                progress(row, step, steps)

        folder = runs / planned.folder
        train(config, folder=folder, role=key.role, progress=show, cache=cache, profile=True)
        result = RunFolder(folder).require_result()
        now = describe_environment(data.fingerprint, key)
        then = {"code": outcome.code} if outcome.code else {}
        yield RetrainedRow(row, Reproduction(folder, scores(outcome), scores(result), changes(then, now)))


def describe_retrained(retrained: Sequence[RetrainedRow], rows: int) -> str:
    """Which parts of a page come from retrained runs, and whether these reproduced the scores of the study."""
    differing = {item.row: item.reproduction.differences for item in retrained if not item.reproduction.matches}
    rows_text = f"each of {rows} rows" if len(retrained) == rows else f"{len(retrained)} of {rows} rows"
    text = (
        "The folders of the runs are gone: thresholds, neighbours, maps, pair weights, memory and scores of single "
        f"queries are of the first run of {rows_text}, trained again for this page. "
    )
    num_identical = len(retrained) - len(differing)
    if not differing:
        return f"{text}All have the scores of the study to the last bit."
    gaps = [(abs(gap), metric, row) for row, metrics in differing.items() for metric, gap in metrics.items()]
    largest, metric, row = max(gaps, key=lambda gap: inf if isnan(gap[0]) else gap[0])
    return (
        f"{text}{num_identical} of them have the scores of the study to the last bit; of the others the largest "
        f"difference is {largest:.1g} ({metric} of {row})."
    )


def first_runs(planned: Iterable[PlannedRun], outcomes: Mapping[str, Outcome]) -> dict[str, tuple[PlannedRun, Outcome]]:
    """Row → the first of its runs, without sweeps, that ended well."""
    runs: dict[str, tuple[PlannedRun, Outcome]] = {}
    for run in planned:
        outcome = outcomes.get(run.key.content)
        if outcome is None or outcome.status != "done":
            continue
        if run.point == BASE and run.key.role in ("final", "baseline"):
            runs.setdefault(run.key.method, (run, outcome))
    return runs
