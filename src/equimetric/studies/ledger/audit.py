"""The verdict on any comparison: one of our studies, one described in a file, or one of the literature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from equimetric.errors import EquimetricError, unknown_name
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import load_run_data
from equimetric.runs.folder import CONFIG, RunFolder
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.ledger.data_overlap import check_data
from equimetric.studies.ledger.description import audit_description, example_names, load_example
from equimetric.studies.ledger.fairness import check_runs
from equimetric.studies.ledger.record import Ledger, LedgerEntry, StudyFacts, waive
from equimetric.studies.ledger.selection import note_on_test_accesses
from equimetric.studies.rows import BASE, list_rows, run_config
from equimetric.studies.store import read_index

__all__ = ["audit", "audit_study"]


def audit(source: str | Path) -> Ledger:
    """The ledger of a comparison: the folder of a study, a description (.toml), or the name of a shipped example."""
    path = Path(source)
    if path.is_dir():
        return audit_study(path)
    if path.suffix == ".toml" or path.exists():
        return audit_description(path)
    if str(source) in example_names():
        return audit_description(load_example(str(source)))
    raise unknown_name("comparison", str(source), example_names())


@dataclass(frozen=True)
class StudyRuns:
    """The runs of a study.

    Attributes:
        configs: row → configurations of its final runs and baselines.
        folders: row → their folders, as far as they are here.
        trials: row → how many trials its search has.
    """

    study: StudyConfig
    configs: Mapping[str, Sequence[RunConfig]]
    folders: Mapping[str, Sequence[Path]]
    trials: Mapping[str, int]


def audit_study(folder: Path) -> Ledger:
    """The ledger of a study from its runs: conditions as they were trained, and looks at the test classes until today.

    What it declares, waives and found in its data is in its ledger.json; without one, the data are checked now.
    """
    study_runs = read_study(folder)
    ledger = Ledger.load(folder)
    entries = []
    if ledger is None:
        facts = StudyFacts(trials=dict(study_runs.trials))
        ledger = Ledger(
            title=study_runs.study.title or study_runs.study.name, source=str(folder), entries=(), facts=facts
        )
        entries = check_data_now(study_runs)
    entries += check_runs(study_runs.configs, ledger.facts, varies=ledger.varies)
    marked, _ = waive(entries, ledger.waivers)
    return ledger.replace(marked, note_on_test_accesses(study_runs.folders))


def read_study(folder: Path) -> StudyRuns:
    """The runs of a study's index. Without its folder, the configuration of a run follows from that of the study."""
    if not (folder / "study.toml").exists():
        raise EquimetricError(f"{str(folder)!r} is not the folder of a study; give a folder such as runs/demo")
    study, index = read_index(folder)
    rows = list_rows(study)
    configs: dict[str, list[RunConfig]] = {}
    folders: dict[str, list[Path]] = {}
    for run in index.planned.values():
        key, path = run.key, folder / run.folder
        if key.role in ("final", "baseline") and run.point == BASE:
            if (path / CONFIG).exists():
                configs.setdefault(key.method, []).append(RunFolder(path).config())
                folders.setdefault(key.method, []).append(path)
            elif key.method in rows:
                configs.setdefault(key.method, []).append(
                    run_config(study, rows[key.method], seed=key.seed, fold=key.fold)
                )
    if not configs:
        raise EquimetricError(f"study {study.name!r} has no run yet; run `equimetric compare` first")
    return StudyRuns(study, configs, folders, {row: len(index.trials_of(row)) for row in index.searches})


def check_data_now(study_runs: StudyRuns) -> list[LedgerEntry]:
    """The parts of the data of every fold; not stated where the data are not here."""
    tables = {
        config.data.model_dump_json(): config.data for configs in study_runs.configs.values() for config in configs
    }
    with suppress(EquimetricError):
        return check_data([load_run_data(table) for table in tables.values()])
    finding = "the data are not here"
    return [
        LedgerEntry(factor="classes", status="not stated", finding=finding),
        LedgerEntry(factor="near_duplicates", status="not stated", finding=finding),
    ]
