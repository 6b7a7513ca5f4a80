"""Studies of older versions: an index of runs without outcomes, or none at all."""

from __future__ import annotations

from pathlib import Path

from equimetric.checksums import read_any_json
from equimetric.errors import DamagedFileError, EquimetricError
from equimetric.runs.damage import read_intact_result
from equimetric.runs.folder import RunFolder
from equimetric.runs.key import Role, RunKey
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.index import PlannedRun, StudyIndex, planned_run_key, require_inside
from equimetric.studies.outcomes import Outcome, make_outcome

__all__ = ["read_old_index"]

OLD_INDEX = "index.json"

ADVICE = "run `equimetric compare` with the study's file again: it keeps the finished runs"


def read_old_index(folder: Path, study: StudyConfig, index: StudyIndex) -> None:
    """Fill the index, in memory only, with the runs of a study and their outcomes from their folders."""
    runs = list_runs(folder, study)
    index.planned |= {planned_run_key(run): run for run in runs}
    for run in runs:
        outcome = read_outcome(folder / run.folder, run.key, study.evaluation.selected_by)
        if outcome is not None:
            index.outcomes[run.key.content] = outcome


def read_outcome(folder: Path, key: RunKey, selected_by: str) -> Outcome | None:
    """The end of a run; a failed one where its folder is damaged, None where it has not ended."""
    run = RunFolder(folder)
    try:
        result = read_intact_result(run)
        return None if result is None else make_outcome(key, run, result, (), selected_by=selected_by)[0]
    except DamagedFileError as error:
        message = f"{error.problem}; `equimetric compare` with the study's file trains this run again, and no other"
        return Outcome(key, "failed", error=message)
    except EquimetricError as error:
        return Outcome(key, "failed", error=str(error))


def list_runs(folder: Path, study: StudyConfig) -> list[PlannedRun]:
    """The runs of a study; needs neither its data nor its weight files."""
    file = folder / OLD_INDEX
    if not file.exists():
        return find_runs(folder, study)
    try:
        content = read_any_json(file, ADVICE)
        entries = content if isinstance(content, list) else content["runs"]  # the oldest is the list alone
        rows = [(RunKey(**row["key"]), str(row["folder"])) for row in entries]
    except (TypeError, KeyError) as error:
        raise DamagedFileError(f"{file} is damaged ({error!r})", ADVICE) from None
    for _, path in rows:
        require_inside(file, path)
    return [PlannedRun(key, "", path) for key, path in rows]


def find_runs(folder: Path, study: StudyConfig) -> list[PlannedRun]:
    """The runs of a study without an index: of each row and seed the newest result."""
    runs: dict[tuple[str, int], PlannedRun] = {}
    rows = [*(study.baselines or ()), *study.methods]
    files = [(row, file) for row in rows for file in (folder / row).glob("*-*/result.json")]
    for row, file in sorted(files, key=lambda pair: (rows.index(pair[0]), pair[1].stat().st_mtime)):
        seed, _, content = file.parent.name.partition("-")
        if seed.isdecimal():
            role: Role = "baseline" if row in (study.baselines or ()) else "final"
            key = RunKey(row, int(seed), study.data.fold, None, role, content)
            runs[row, int(seed)] = PlannedRun(key, "", str(file.parent.relative_to(folder)))
    return list(runs.values())
