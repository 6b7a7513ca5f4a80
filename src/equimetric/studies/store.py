"""A study on disk, and its record, a pure function of the run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from equimetric.checksums import json_document, read_any_json, read_json, toml_document
from equimetric.configuration import load_stored_config, to_toml
from equimetric.data import Dataset
from equimetric.errors import DamagedFileError, EquimetricError
from equimetric.files import sweep, write_atomically
from equimetric.runs.data import load_run_data
from equimetric.runs.folder import RunFolder
from equimetric.runs.key import Role, RunKey
from equimetric.runs.result import RunResult
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.gallery import galleries
from equimetric.studies.jobs import RunEntry
from equimetric.studies.narrative import conditions, shown_metrics, statement
from equimetric.studies.records import PLAIN, RunRecord, StudyRecord
from equimetric.studies.results import read_result

__all__ = ["load_study", "save_study"]

INDEX = "index.json"

ADVICE = "run `equimetric compare` with the study's file again: it keeps the finished runs"


def save_study(folder: Path, study: StudyConfig, data_fingerprint: str, entries: Sequence[RunEntry]) -> None:
    """Write the configuration of the study, the fingerprint of its data, and the index of its runs.

    What killed processes left in the folders of the study and of its runs is removed.
    """
    write_atomically(folder / "study.toml", toml_document(to_toml(study)))
    write_atomically(folder / "data.json", json_document({"fingerprint": data_fingerprint}))
    rows = [{"key": asdict(entry.key), "folder": str(entry.folder.relative_to(folder))} for entry in entries]
    write_atomically(folder / INDEX, json_document({"runs": rows}, indent=1))
    for path in (folder, *(entry.folder for entry in entries)):
        sweep(path)


def load_study(folder: str | Path) -> StudyRecord:
    """The record of a study from its folder: every run of its index with a result, and the shared conditions."""
    folder = Path(folder)
    if not all((folder / name).exists() for name in ("study.toml", "data.json")):
        raise EquimetricError(f"{str(folder)!r} is not the folder of a study; give a folder such as runs/demo")
    study = load_stored_config(folder / "study.toml", StudyConfig, ADVICE)
    fingerprint = read_json(folder / "data.json", dict, ADVICE).get("fingerprint", "")
    results = {entry: result for entry in read_index(folder, study) if (result := read_result(entry)) is not None}
    entries = list(results)
    if not entries:
        raise EquimetricError(f"study {study.name!r} has no finished run yet; run `equimetric compare` first")
    dataset = find_images(study, fingerprint)
    return StudyRecord(
        name=study.name,
        title=study.title or f"Comparison {study.name}",
        statement=statement(study, entries),
        conditions=conditions(study, dataset),
        runs=tuple(run_record(entry, result) for entry, result in results.items()),
        galleries={} if dataset is None else galleries(study, results, dataset),
        shown=shown_metrics(study),
        primary_metric=study.evaluation.selected_by,
    )


def read_index(folder: Path, study: StudyConfig) -> list[RunEntry]:
    """The runs of a study; needs neither its data nor its weight files."""
    file = folder / INDEX
    if not file.exists():
        return find_runs(folder, study)
    try:
        content = read_any_json(file, ADVICE)
        found = content if isinstance(content, list) else content["runs"]  # older versions wrote the list alone
        rows = [(RunKey(**row["key"]), Path(row["folder"])) for row in found]
    except (TypeError, KeyError) as error:
        raise DamagedFileError(f"{file} is damaged ({error!r})", ADVICE) from None
    for _, path in rows:
        if path.is_absolute() or ".." in path.parts:
            raise EquimetricError(f"{file} names a folder outside of the study, {str(path)!r}; {ADVICE}")
    return [RunEntry(key, folder / path) for key, path in rows]


def find_runs(folder: Path, study: StudyConfig) -> list[RunEntry]:
    """The runs of a study that an older version left without an index: of each row and seed the newest result."""
    found: dict[tuple[str, int], RunEntry] = {}
    rows = [*(study.baselines or ()), *study.methods]
    files = [(row, file) for row in rows for file in (folder / row).glob("*-*/result.json")]
    for row, file in sorted(files, key=lambda one: (rows.index(one[0]), one[1].stat().st_mtime)):
        seed, _, content = file.parent.name.partition("-")
        if seed.isdecimal():
            role: Role = "baseline" if row in (study.baselines or ()) else "final"
            key = RunKey(row, int(seed), study.data.fold, None, role, content)
            found[row, int(seed)] = RunEntry(key, file.parent)
    return list(found.values())


def run_record(entry: RunEntry, result: RunResult) -> RunRecord:
    """The part of a run that the report needs; a failed one may have a log that cannot be read."""
    history: tuple[Mapping[str, object], ...] = ()
    with suppress(EquimetricError, OSError, ValueError):
        history = tuple(line for line in RunFolder(entry.folder).history() if isinstance(line, Mapping))
    return RunRecord(
        method=entry.row,
        kind=entry.kind,
        seed=entry.key.seed,
        status=result.status,
        error=result.error,
        metrics={**result.metrics, **{name + PLAIN: value for name, value in result.plain.items()}},
        history=history,
        seconds=result.seconds,
        parameters=result.parameters,
        notes=result.notes,
    )


def find_images(study: StudyConfig, fingerprint: str) -> Dataset | None:
    """The images of the study, for the gallery; None if they are missing or have changed."""
    try:
        data = load_run_data(study.data)
    except EquimetricError:
        return None
    return data.dataset if data.fingerprint == fingerprint and not data.vectors else None
