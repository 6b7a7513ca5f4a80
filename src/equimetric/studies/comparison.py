"""A fair comparison, from its configuration to its table; resumable at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equimetric.dotted import set_dotted
from equimetric.errors import EquimetricError, StorageError
from equimetric.escaping import one_line
from equimetric.runs.access import require_writable
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import DataConfig
from equimetric.runs.data import RunData, load_run_data
from equimetric.runs.image_size import fit_images
from equimetric.runs.regimes import fit_to_data
from equimetric.stopping import Stopped, stop_on_signals
from equimetric.studies.configuration import Baseline, StudyConfig
from equimetric.studies.engines import Engine, open_engine
from equimetric.studies.extraction import extract_features
from equimetric.studies.index import StudyIndex
from equimetric.studies.jobs import RowCheck
from equimetric.studies.ledger import Ledger, check_fairness
from equimetric.studies.plan import StudyPlan
from equimetric.studies.records import StudyRecord
from equimetric.studies.rows import BASE, find_points, run_config, tuned_conditions
from equimetric.studies.schedule import Watcher, execute_plan, forget_damaged, ignore_progress, record_unindexed_runs
from equimetric.studies.search import budget
from equimetric.studies.store import load_study, save_study
from equimetric.studies.study_file import load_study_config
from equimetric.studies.table import ComparisonTable, comparison_table
from equimetric.training.preconditions import require_conditions, require_trainable, warn_if_not_augmented

__all__ = ["Comparison", "compare", "open_plan", "prepare_plan"]

StartCallback = Callable[[StudyPlan], None]
"""Called once before anything trains, with the plan of the study."""


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
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        remarks = [f"{runs} failed: {reason}" for runs, reason in self.record.grouped_failures]
        remarks += [f"{runs}: {note}" for runs, note in self.record.grouped_notes]
        return "\n".join([*table, *map(one_line, remarks)])

    def __repr__(self) -> str:
        return f"Comparison({self.record.name!r}, {len(self.record.runs)} runs, {str(self.folder)!r})"


def compare(
    study: StudyConfig | Mapping[str, Any] | str | Path,
    *,
    output: str | Path = "runs",
    overrides: Mapping[str, Any] | None = None,
    retry_failed: bool = False,
    jobs: int | None = None,
    engine: str = "local",
    begin: StartCallback | None = None,
    watch: Watcher | None = None,
) -> Comparison:
    """Tune, train and test every method under equal conditions; the result prints as a table.

    `study` is a TOML file, a mapping or a `StudyConfig`. Called again, it does only what is missing; a killed study
    resumes where it stopped and gives the same table. A failed run is reported and stops no other. `jobs` runs work at
    a time, in processes of this machine or as tasks of a Ray cluster (`engine="ray"`); the table is the same.
    SIGINT and SIGTERM stop all runs after their current step, each with a checkpoint.
    """
    plan, ledger = prepare_plan(study, output=output, overrides=overrides)
    save_study(plan)
    ledger.save(plan.folder)
    forget_damaged(plan, retry_failed=retry_failed)
    record_unindexed_runs(plan, retry_failed=retry_failed)
    plan.index.plan(map(plan.index_entry, plan.known_jobs()))
    if begin:
        begin(plan)
    try:
        with stop_on_signals():
            ready = [row for row in plan.rows if plan.ready_jobs(row)]
            with open_engine(engine, jobs or plan.study.workers) as running:
                check_in_worker(plan, ready, running)
                extract_features(plan, ready)
                execute_plan(plan, running, watch or ignore_progress)
    except Stopped as stop:
        raise Stopped(stop.number, f"stopped; {count_finished(plan)}; run the same command again to resume") from None
    except StorageError as error:
        raise StorageError(f"{error} ({count_finished(plan)})") from error
    return Comparison(load_study(plan.folder), plan.folder)


def prepare_plan(
    study: StudyConfig | Mapping[str, Any] | str | Path,
    *,
    output: str | Path = "runs",
    overrides: Mapping[str, Any] | None = None,
) -> tuple[StudyPlan, Ledger]:
    """The checked plan of a study that is fair, with its ledger; nothing is written."""
    plan = open_plan(study, output=output, overrides=overrides)
    ledger = check_plan(plan)
    ledger.raise_unfair()
    return plan, ledger


def open_plan(
    study: StudyConfig | Mapping[str, Any] | str | Path,
    *,
    output: str | Path = "runs",
    overrides: Mapping[str, Any] | None = None,
) -> StudyPlan:
    """The checked plan of a study with its index; nothing is written."""
    config = fit_images(load_study_config(study, overrides))
    folder = Path(output) / config.name
    require_writable(folder, "study folder")
    warn_if_not_augmented(config)
    data = load_run_data(config.data, model=config.model)
    config = fit_to_data(choose_baselines(config, data), data.shape)
    plan = StudyPlan(config, folder, load_points(config, data), StudyIndex(folder))
    check_study(plan)
    return plan


def choose_baselines(study: StudyConfig, data: RunData) -> StudyConfig:
    """The study with the baselines that its data allow, unless it names its own."""
    if study.baselines is not None:
        return study
    chosen: list[Baseline] = ["raw_features"] if data.vectors else ["raw_pixels"]
    if study.model.pretrained is not None and not data.vectors:
        chosen.append("raw_features")
    if "raw_features" in chosen and study.model.head_init != "pca":
        chosen.append("pretrained")
    return study.model_copy(update={"baselines": [*chosen, "untrained"]})


def load_points(study: StudyConfig, data: RunData) -> dict[str, RunData]:
    """The data of every point of a study's sweeps; loaded once where points share them."""
    loaded, points = {study.data.model_dump_json(): data}, {}
    for point, conditions in find_points(study).items():
        values = {"data": study.data.model_dump()}
        for key, value in conditions.items():
            if key.startswith("data."):
                set_dotted(values, key, value)
        config = DataConfig.model_validate(values["data"])
        name = config.model_dump_json()
        if name not in loaded:
            loaded[name] = load_run_data(config)
        points[point] = loaded[name]
    return points


def check_study(plan: StudyPlan) -> None:
    """Check the conditions, and build learner, optimiser and samplers of every row, so that mistakes raise at once."""
    for point in plan.points:
        data = plan.data[point]
        rows = [row for row in plan.rows.values() if point in plan.points_of(row)]
        for index, row in enumerate(rows):
            config = run_config(plan.study, row, seed=row.seeds[0], fold=row.folds[0], point=plan.points_of(row)[point])
            if index == 0:
                require_conditions(config, data)
            require_writable(plan.folder / row.name, "run folder")
            try:
                require_trainable(config, data, build_learner(config, data.shape))
            except (TypeError, EquimetricError) as error:
                location = f" at {point!r}" if point else ""
                raise EquimetricError(f"method {row.name!r}{location}: {error}") from None


def check_plan(plan: StudyPlan) -> Ledger:
    """The fairness ledger of a study before its first step."""
    study = plan.study
    configs = {
        row.name: [run_config(study, row, seed=seed, fold=fold) for seed in row.seeds for fold in row.folds]
        for row in plan.rows.values()
    }
    folds = [study.data.model_copy(update={"fold": fold}) for fold in study.folds()]
    return check_fairness(
        study.title or study.name,
        configs,
        [load_run_data(config) for config in folds],
        trials=count_trials(plan),
        tuned=tuned_conditions(plan.rows.values()),
        varies=study.varies,
        waivers=study.waivers,
    )


def check_in_worker(plan: StudyPlan, ready: Sequence[str], engine: Engine) -> None:
    """Raise an error where a method cannot be built where it will train, before anything does."""
    if not ready:
        return
    trained = [row for row in plan.rows.values() if row.kind == "trained"]
    configs = {row.name: run_config(plan.study, row, seed=row.seeds[0], fold=row.folds[0]) for row in trained}
    problem = engine.check([RowCheck(row, config, plan.data[BASE].shape) for row, config in configs.items()])
    if problem:
        raise EquimetricError(problem)


def count_trials(plan: StudyPlan) -> dict[str, int | None]:
    """The trials of every row's search; an arm takes the options of its method. None where there is nothing to tune."""
    search = plan.study.search
    if search is None:
        return {}
    spaces = {row.name: plan.rows[row.base or row.name].space for row in plan.rows.values() if row.kind == "trained"}
    return {row: budget(space, search) or None for row, space in spaces.items()}


def count_finished(plan: StudyPlan) -> str:
    """'8 of 19 runs are finished'."""
    return f"{plan.count_ended()} of {plan.count_runs()} runs are finished"
