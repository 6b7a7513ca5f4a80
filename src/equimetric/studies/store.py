"""A study on disk, and its record, a pure function of configuration and index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from equimetric.checksums import json_document, read_json, toml_document
from equimetric.configuration import load_config, load_stored_config, to_toml
from equimetric.data import Dataset, shifted_split_of
from equimetric.errors import DamagedFileError, EquimetricError, StorageError
from equimetric.files import explain_write_error, sweep, write_atomically
from equimetric.runs.access_log import read_test_accesses
from equimetric.runs.configuration import Conditions
from equimetric.runs.damage import read_intact_result
from equimetric.runs.data import load_run_data
from equimetric.runs.folder import RunFolder
from equimetric.runs.key import Role
from equimetric.studies.configuration import StudyConfig, is_condition
from equimetric.studies.gallery import galleries
from equimetric.studies.index import INDEX, PlannedRun, StudyIndex
from equimetric.studies.ledger.record import Ledger
from equimetric.studies.narrative import choose_table_metrics, describe_rows, describe_study_conditions, statement
from equimetric.studies.old_index import read_old_index
from equimetric.studies.outcomes import Outcome
from equimetric.studies.plan import StudyPlan, find_choice, find_trials
from equimetric.studies.profiles import load_profiles, study_images
from equimetric.studies.query_scores import compare_queries
from equimetric.studies.records import PLAIN, RunRecord, SearchRecord, StudyRecord
from equimetric.studies.rows import BASE, RowSpec, list_rows
from equimetric.studies.search import budget

__all__ = ["is_study", "load_study", "locate_data", "read_index", "require_study", "save_study"]

OWN_FILES = {"arrays": "file", "features": "file", "folder": "root", "manifest": "file"}
"""Data of the user's own → the option that says where it is."""

ENVIRONMENT = ("equimetric", "code", "protocol", "python", "torch", "numpy", "platform", "processor", "cores", "cuda")
"""Facts of environment.json that a report shows."""

DATA_OPTIONS_PREFIX = "data.options."
"""Keys that say where the data are now; everything else is part of the study."""

ADVICE = "run `equimetric compare` with the study's file again: it keeps the finished runs"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A planned run with its end."""

    planned: PlannedRun
    outcome: Outcome


def save_study(plan: StudyPlan) -> None:
    """Write the configuration of the study, the fingerprint of its data, and begin its index.

    What killed processes left in the folders of the study and of its runs is removed.
    """
    folder = plan.folder
    try:
        write_atomically(folder / "study.toml", toml_document(to_toml(plan.study)))
        stored = {"fingerprint": plan.data[BASE].fingerprint, "shifts": find_shifts(plan)}
        write_atomically(folder / "data.json", json_document(stored))
        plan.index.begin(plan.index.searches)
        sweep(folder)
        for row in plan.rows:
            for run in (folder / row).glob("*"):
                sweep(run)
    except OSError as error:
        raise StorageError(f"cannot write to the study folder {str(folder)!r}: {explain_write_error(error)}") from None


def load_study(
    folder: str | Path, *, retrained_folder: Path | None = None, data_options: Mapping[str, Any] | None = None
) -> StudyRecord:
    """The record of a study from its folder: every run that has ended, and the shared conditions.

    `retrained_folder` replaces the study's own folder as the location of runs, for those that `retrain_rows` wrote.
    `data_options` are keys `data.options.…` with the current location of the data.
    """
    folder = Path(folder)
    runs_at = retrained_folder or folder
    require_study(folder)
    stored = read_json(folder / "data.json", dict, ADVICE)
    study, index = read_index(folder)
    finished = [
        FinishedRun(planned, index.outcomes[planned.key.content])
        for planned in index.planned.values()
        if planned.key.content in index.outcomes
    ]
    runs = select_runs(finished, "final", "baseline", swept=False)
    if not runs:
        raise EquimetricError(
            f"the index of study {study.name!r} has no finished run; run `equimetric compare` with the study's file, "
            "which keeps the runs whose folders are whole"
        )
    rows = list(list_rows(study).values())
    trained = [row for row in rows if row.kind == "trained"]
    searches = read_searches(study, index)
    dataset = find_images(locate_data(study, data_options), stored.get("fingerprint", ""))
    images = None if dataset is None else study_images(dataset)
    finished_runs = [run for run in runs if run.outcome.status == "done"]
    folders = [(run.planned.key.method, runs_at / run.planned.folder) for run in finished_runs]
    seeded = [(run.planned.key.method, run.planned.key.seed, runs_at / run.planned.folder) for run in finished_runs]
    return StudyRecord(
        name=study.name,
        title=study.title or f"Comparison {study.name}",
        statement=statement(study),
        conditions=describe_study_conditions(study, dataset),
        row_settings=describe_rows(study),
        runs=tuple(drop_foreign_folder(run_record(run, runs_at, index), folder) for run in runs),
        galleries={} if dataset is None else galleries(study.name, folders, dataset),
        table_metrics=choose_table_metrics(study),
        primary_metric=study.evaluation.selected_by,
        across=study.evaluation.across,
        joined_runs=tuple(joined_record(run, runs_at, index, runs) for run in select_runs(finished, "joined")),
        sweep_runs=tuple(
            run_record(run, runs_at, index) for run in select_runs(finished, "final", "baseline", swept=True)
        ),
        probe_runs=tuple(run_record(run, runs_at, index) for run in select_runs(finished, "probe")),
        shifts=stored.get("shifts", {}),
        searches=searches,
        recipes={row.name: (row.method, row.options) for row in trained},
        tuned={row.name: tuned_options(row, searches) for row in trained},
        planned={row.name: len(row.seeds) * len(row.folds) for row in rows},
        dataset=name_data(study),
        protocol=f"{study.protocol} {study.protocol_version}" if study.protocol_version else "",
        departures=study.departures,
        statistics=study.statistics,
        ledger=Ledger.load(folder),
        configuration=to_toml(study),
        fingerprint=stored.get("fingerprint", ""),
        environment={} if retrained_folder else read_environment([path for _, path in folders]),
        test_accesses={} if retrained_folder else count_test_accesses([path for _, path in folders]),
        queries=compare_queries(study.evaluation.selected_by, folders, images),
        profiles=load_profiles(seeded),
        images=images,
    )


def select_runs(finished: Sequence[FinishedRun], *roles: Role, swept: bool | None = None) -> list[FinishedRun]:
    """The runs of these roles; `swept` keeps those at points of sweeps alone, or those of the study itself alone."""
    return [
        run
        for run in finished
        if run.outcome.key.role in roles and (swept is None or swept == (run.planned.point != BASE))
    ]


def is_study(folder: Path) -> bool:
    """Whether a folder holds the files of a study."""
    return all((folder / name).exists() for name in ("study.toml", "data.json"))


def require_study(folder: Path) -> None:
    """Raise an error where a folder is not that of a study."""
    if not is_study(folder):
        raise EquimetricError(f"{str(folder)!r} is not the folder of a study; give a folder such as runs/demo")


def locate_data(study: StudyConfig, data_options: Mapping[str, Any] | None) -> StudyConfig:
    """The study with the current location of its data."""
    for key in data_options or ():
        if not key.startswith(DATA_OPTIONS_PREFIX):
            raise EquimetricError(
                f"{key!r} would make another study; a report takes keys {DATA_OPTIONS_PREFIX}NAME, "
                "which say where its data are now"
            )
    return load_config(study, StudyConfig, data_options)


def read_environment(folders: Sequence[Path]) -> dict[str, str]:
    """Versions and hardware behind runs; several values of one kind are listed."""
    facts: dict[str, list[str]] = {}
    for folder in folders:
        with suppress(EquimetricError):
            for name, value in (RunFolder(folder).environment() or {}).items():
                if name in ENVIRONMENT and value is not None:
                    facts.setdefault(name, []).append(str(value))
    return {name: ", ".join(dict.fromkeys(values)) for name, values in facts.items()}


def count_test_accesses(folders: Sequence[Path]) -> dict[str, int]:
    """Command → how often it looked at the test classes of runs whose folders are there."""
    existing = (folder for folder in folders if folder.exists())
    return dict(Counter(access.command for folder in existing for access in read_test_accesses(folder)))


def name_data(study: StudyConfig) -> str:
    """The data set; for the user's own data its folder or file, or the study where a path names none."""
    data = study.data
    if data.name not in OWN_FILES:
        return data.name
    path = Path(str(data.options.get(OWN_FILES[data.name], "")))
    return (path.parent if data.name == "manifest" else path).stem or study.name


def joined_record(run: FinishedRun, runs_folder: Path, index: StudyIndex, runs: Sequence[FinishedRun]) -> RunRecord:
    """The record of fold models side by side, whose time is that of all their trainings."""
    record = run_record(run, runs_folder, index)
    trained = (member.outcome for member in runs if member.planned.key.method == record.method)
    return replace(record, seconds=sum(outcome.seconds for outcome in trained if outcome.key.seed == record.seed))


def find_shifts(plan: StudyPlan) -> dict[str, float]:
    """Point of a sweep → Fréchet distance of its test classes from the training classes, of splits from a file."""
    split = plan.study.data.split
    if split is None:
        return {}
    split_numbers = {
        point: int(conditions["data.split.number"])
        for point, conditions in plan.points.items()
        if "data.split.number" in conditions
    }
    dataset = plan.data[BASE].dataset
    return {point: shifted_split_of(split.file, n, dataset).distance for point, n in split_numbers.items()}


def read_index(folder: Path) -> tuple[StudyConfig, StudyIndex]:
    """The configuration of a study and its index, also of one that an older version wrote."""
    study = load_stored_config(folder / "study.toml", StudyConfig, ADVICE)
    index = StudyIndex(folder)
    if not (folder / INDEX).exists():
        read_old_index(folder, study, index)
    return study, index


def read_searches(study: StudyConfig, index: StudyIndex) -> dict[str, SearchRecord]:
    """The search of every row that has one; needs neither data nor weight files."""
    if study.search is None:
        return {}
    searches = {}
    for row in list_rows(study).values():
        if row.space:
            trials = find_trials(index, row, study.evaluation.selected_by)
            searches[row.name] = SearchRecord(
                row.space, tuple(trials), find_choice(row, trials), budget(row.space, study.search)
            )
    return searches


def tuned_options(row: RowSpec, searches: Mapping[str, SearchRecord]) -> dict[str, Any]:
    """The options of its objective that were tuned for a row, or for the method of an arm."""
    search = searches.get(row.base or row.name)
    params = {} if search is None or search.choice is None else row.tuned_options(search.choice.params)
    return {key: value for key, value in params.items() if not is_condition(key)}


def run_record(run: FinishedRun, runs_folder: Path, index: StudyIndex) -> RunRecord:
    """The part of a run that tables and report need; a damaged folder makes it a failed run that says what to do."""
    outcome, key = run.outcome, run.outcome.key
    folder = runs_folder / run.planned.folder
    damage = find_damage(folder) if run.planned.folder else None
    error = outcome.error if outcome.status == "failed" else damage
    return RunRecord(
        method=run.planned.key.method,
        kind="baseline" if key.role == "baseline" else "trained",
        seed=key.seed,
        status="failed" if error else "done",
        error=error,
        metrics={**outcome.metrics, **{name + PLAIN: value for name, value in outcome.plain.items()}},
        history=read_history(folder, outcome),
        seconds=outcome.seconds,
        memory=outcome.memory or read_memory(folder),
        parameters=outcome.parameters,
        cost=outcome.cost,
        members=outcome.members,
        diversity=outcome.diversity,
        notes=outcome.notes,
        fold=key.fold,
        point=run.planned.point,
        per_class=outcome.per_class,
        classes=index.class_lists.get(outcome.classes),
        code=outcome.code,
        folder=run.planned.folder if run.planned.folder and folder.exists() else "",
    )


def drop_foreign_folder(record: RunRecord, study_folder: Path) -> RunRecord:
    """Clear the folder of a run that was retrained outside of the study."""
    return record if (study_folder / record.folder).exists() else replace(record, folder="")


def find_damage(folder: Path) -> str | None:
    """What is wrong with the folder of a finished run; None where it is intact or missing."""
    if not folder.exists():
        return None
    try:
        read_intact_result(RunFolder(folder))
    except DamagedFileError as error:
        return f"{error.problem}; `equimetric compare` with the study's file trains this run again, and no other"
    except EquimetricError as error:
        return str(error)
    return None


def read_memory(folder: Path) -> Mapping[str, int]:
    """Peak memory from the folder of a run, for an index that lacks it."""
    with suppress(EquimetricError):
        result = RunFolder(folder).result()
        if result is not None and result.memory is not None:
            return result.memory.model_dump(exclude_none=True)
    return {}


def read_history(folder: Path, outcome: Outcome) -> tuple[Mapping[str, object], ...]:
    """The log of a run, or the validation curve of the index where the folder is missing."""
    with suppress(EquimetricError, OSError, ValueError):
        lines: Sequence[object] = RunFolder(folder).history()
        if lines:
            return tuple(line for line in lines if isinstance(line, Mapping))
    metric = next(iter(outcome.validation), "")
    return tuple({"kind": "validation", "step": step, metric: value} for step, value in outcome.curve)


def find_images(study: Conditions, fingerprint: str) -> Dataset | None:
    """The images of a study or a run, for the gallery; None if they are missing or have changed."""
    try:
        data = load_run_data(study.data)
    except EquimetricError:
        return None
    return data.dataset if data.fingerprint == fingerprint and not data.vectors else None
