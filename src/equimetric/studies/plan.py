"""The jobs to run next, row by row: a pure function of the study and its index.

A row whose parameters are tuned goes through its trials one after the other, the folds of each at the same time; then
come its final runs, at every point of the study's sweeps; then, for each repetition, its fold models joined, and its
probes. An arm of a method waits until the method is tuned. Because the index alone decides, a study that is stopped at
any moment resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import RunData
from equimetric.runs.key import Role, RunKey, run_inputs
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.index import PlannedRun, StudyIndex
from equimetric.studies.jobs import Job
from equimetric.studies.probes.probe import PROBES, Probe
from equimetric.studies.rows import BASE, RowSpec, find_points, list_rows, run_config
from equimetric.studies.search import ScoredTrial, SearchChoice, best_trial, budget, edge_notes, propose

__all__ = ["StudyPlan", "find_choice", "find_trials", "search_identity"]

ALL_FOLDS = -1
"""The fold of joined fold models."""


@dataclass(frozen=True, eq=False)
class StudyPlan:
    """The work of a study.

    Attributes:
        study: its configuration.
        folder: folder of its runs.
        data: point of a sweep → data.
        index: the runs that have ended.
    """

    study: StudyConfig
    folder: Path
    data: Mapping[str, RunData]
    index: StudyIndex
    rows: Mapping[str, RowSpec] = field(init=False)
    points: Mapping[str, Mapping[str, Any]] = field(init=False)
    _proposed: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict, init=False)
    _runs: dict[str, list[Job]] = field(default_factory=dict, init=False)
    _joined: dict[str, list[tuple[list[Job], Job]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", list_rows(self.study))
        object.__setattr__(self, "points", find_points(self.study))
        self.index.searches = self.searches()

    def count_runs(self) -> int:
        """All runs, trials of every fold and joined ones included."""
        return sum(self.count_runs_of(row) for row in self.rows.values())

    def count_runs_of(self, row: RowSpec) -> int:
        """The runs of one row."""
        trials = budget(row.space, self.study.search) if self.study.search else 0
        points = len(self.points_of(row))
        joined = len(row.seeds) * points if self.has_joined_models(row) else 0
        repetitions = len(row.seeds) * len(row.folds)
        return trials * len(row.folds) + repetitions * (points + len(self.probes_of(row))) + joined

    def points_of(self, row: RowSpec) -> dict[str, dict[str, Any]]:
        """Label → conditions of the points of a row."""
        return find_points(self.study, row)

    def count_ended(self) -> int:
        """The runs that have ended, trials and joined ones included."""
        runs = sum(job.key.content in self.index.outcomes for job in self.known_jobs())
        return runs + sum(len(folds) for row in self.rows for folds in self.index.trials_of(row).values())

    def ready_jobs(self, name: str) -> list[Job]:
        """The jobs of a row that can be done now and have not ended."""
        row = self.rows[name]
        if not self.is_tuned(self.rows[row.base or name]):
            return [] if row.base else self.trial_jobs(row)
        return [*self.final_jobs(row), *self.joined_jobs(row), *self.probe_jobs(row)]

    def dependents(self, name: str) -> list[str]:
        """The rows to check when a job of a row has ended: the row itself, and the arms that wait for it."""
        return [name, *(row.name for row in self.rows.values() if row.base == name)]

    # The search.

    def trials(self, row: RowSpec) -> list[ScoredTrial]:
        """The trials of a row that have ended in all folds, in order."""
        return find_trials(self.index, row, self.study.evaluation.selected_by)

    def is_tuned(self, row: RowSpec) -> bool:
        """Whether tuning is finished or not needed."""
        return self.study.search is None or len(self.trials(row)) >= budget(row.space, self.study.search)

    def search_choice(self, row: RowSpec) -> SearchChoice | None:
        """The search choice of a row, or of an arm's base; None where nothing was searched."""
        base = self.rows[row.base or row.name]
        return find_choice(base, self.trials(base)) if base.space else None

    def trial_jobs(self, row: RowSpec) -> list[Job]:
        """The folds of a row's next trial that have not ended."""
        search = self.study.search
        assert search is not None
        trials = self.trials(row)
        trial = len(trials)
        ended = self.index.trials_of(row.name).get(trial, {})
        stored = dict(next(iter(ended.values())).params) if ended else self._proposed.get((row.name, trial))
        params = stored or propose(row.space, trials, search, row.name)
        self._proposed[row.name, trial] = params
        jobs = []
        for fold in row.folds:
            config = run_config(self.study, row, seed=search.seed + trial, fold=fold, params=params)
            key = self.make_key(config, row, "trial", trial=trial)
            job = Job(key, self.folder, config, params=params, search=self.index.searches[row.name])
            jobs.append(job)
        return [job for job in jobs if job.key.content not in self.index.outcomes]

    def searches(self) -> dict[str, str]:
        """Row → hash of all that determines its trials, where there are any."""
        rows = [row for row in self.rows.values() if row.space]
        return {row.name: search_identity(self.study, row, self.data[BASE].fingerprint) for row in rows}

    # The final runs.

    def final_jobs(self, row: RowSpec) -> list[Job]:
        """The runs of a row, at every point, that have not ended."""
        return [job for job in self.runs(row) if job.key.content not in self.index.outcomes]

    def runs(self, row: RowSpec) -> list[Job]:
        """All final runs of a row that is tuned, seed by seed, so that an unfinished study has all methods.

        A run that starts with the network of another is known when that has ended.
        """
        if row.name not in self._runs:
            params = self.chosen_params(row)
            jobs = [
                job
                for seed in row.seeds
                for points in self.chains(row)
                for fold in row.folds
                for job in self.chain_jobs(row, seed, fold, points, params)
            ]
            if len(jobs) < len(row.seeds) * len(row.folds) * len(self.points_of(row)):
                return jobs
            self._runs[row.name] = jobs
        return self._runs[row.name]

    def chains(self, row: RowSpec) -> list[list[str]]:
        """Lists of a row's points whose runs start from one another; most points form a chain of one."""
        sweeps = [self.study.sweeps[name] for name in self.study.sweep]
        chained = [list(sweep.settings(*row.kinds)) for sweep in sweeps if sweep.chain]
        inside = {point for points in chained for point in points}
        return [*([point] for point in self.points_of(row) if point not in inside), *chained]

    def chain_jobs(
        self, row: RowSpec, seed: int, fold: int, points: Sequence[str], params: Mapping[str, Any]
    ) -> Iterator[Job]:
        """The runs of a chain, up to the first one whose predecessor has not ended well."""
        previous: Job | None = None
        for point in points:
            if previous is not None and not self.is_done(previous):
                return
            start = {} if previous is None or row.kind == "baseline" else {"model.start": str(previous.folder)}
            previous = self.make_run_job(row, seed, fold, point, params, start)
            yield previous

    def chosen_params(self, row: RowSpec) -> dict[str, Any]:
        """The tuned parameters as a row takes them; empty where nothing was tuned."""
        tuned = self.search_choice(row)
        return {} if tuned is None else row.tuned_options(tuned.params)

    def make_run_job(
        self,
        row: RowSpec,
        seed: int,
        fold: int,
        point: str,
        params: Mapping[str, Any],
        start: Mapping[str, Any],
    ) -> Job:
        """One final run; `start` names the run whose network it starts from, if any."""
        conditions = {**self.points_of(row)[point], **start}
        config = run_config(self.study, row, seed=seed, fold=fold, params=params, point=conditions)
        role: Role = "baseline" if row.kind == "baseline" else "final"
        return self.make_job(config, row, role, point, params)

    # Fold models side by side.

    def has_joined_models(self, row: RowSpec) -> bool:
        """Whether there are fold models to join, or a baseline of as many dimensions as they have together."""
        multiple_folds = self.study.cross_validation and self.study.data.folds > 1
        return multiple_folds and (len(row.folds) > 1 or row.name == "pretrained")

    def joined_jobs(self, row: RowSpec) -> list[Job]:
        """The joined models of a row, not evaluated yet, whose fold models have all ended well."""
        return [
            job
            for members, job in self.joined_runs(row)
            if job.key.content not in self.index.outcomes and all(map(self.is_done, members))
        ]

    def joined_runs(self, row: RowSpec) -> list[tuple[list[Job], Job]]:
        """The fold models of every repetition, and the job that joins them."""
        if row.name not in self._joined:
            groups: dict[tuple[int, str], list[Job]] = {}
            for job in self.runs(row) if self.has_joined_models(row) else ():
                groups.setdefault((job.key.seed, job.point), []).append(job)
            complete = [members for members in groups.values() if len(members) == len(row.folds)]
            joined = [(members, self.join_job(row, members)) for members in complete]
            if row.name not in self._runs:
                return joined
            self._joined[row.name] = joined
        return self._joined[row.name]

    def join_job(self, row: RowSpec, members: Sequence[Job]) -> Job:
        """The fold models of one repetition as one job; of the pretrained network, its components in their number."""
        first = members[0]
        if row.name == "pretrained":
            dim = (first.config.model.dim or 1) * self.study.data.folds
            model = first.config.model.model_copy(update={"dim": dim})
            return self.make_job(first.config.model_copy(update={"model": model}), row, "joined", first.point, {})
        contents = [member.key.content for member in members]
        content = hashlib.sha256(json.dumps(["joined", *contents]).encode()).hexdigest()[:12]
        key = RunKey(row.name, first.key.seed, ALL_FOLDS, None, "joined", content)
        folder = self.folder / row.name / f"joined-{key.folder}"
        folders = tuple(member.folder for member in members)
        return Job(key, folder, first.config, first.point, first.params, members=folders)

    # Further measurements.

    def probes_of(self, row: RowSpec) -> list[Probe]:
        """The probes of a row: those of sweeps where these are run; baselines have no head to adapt and no rounds."""
        probes = [PROBES.find(name) for name in self.study.probes]
        return [
            probe
            for probe in probes
            if (row.kind == "trained" or probe.name == "conditions")
            and (not probe.sweep or probe.sweep in self.study.sweep)
        ]

    def probe_jobs(self, row: RowSpec) -> list[Job]:
        """The probes of a row, not measured yet, whose runs have all ended well."""
        return [job for job in self.probe_runs(row) if job.key.content not in self.index.outcomes]

    def probe_runs(self, row: RowSpec) -> Iterator[Job]:
        """The probes of a row whose runs have all ended well."""
        for probe in self.probes_of(row):
            points = list(self.study.sweeps[probe.sweep].settings(*row.kinds)) if probe.sweep else [BASE]
            groups: dict[tuple[int, int], list[Job]] = {}
            for job in self.runs(row):
                if job.point in points and self.is_done(job):
                    groups.setdefault((job.key.seed, job.key.fold), []).append(job)
            for members in groups.values():
                if len(members) == len(points):
                    yield self.probe_job(row, probe, sorted(members, key=lambda job: points.index(job.point)))

    def probe_job(self, row: RowSpec, probe: Probe, members: Sequence[Job]) -> Job:
        """One measurement of one run, or of the runs of a sweep."""
        first = members[0]
        inputs = ["probe", probe.name, probe.version, *(member.key.content for member in members)]
        content = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]
        key = RunKey(row.name, first.key.seed, first.key.fold, None, "probe", content)
        folders = tuple(member.folder for member in members)
        return Job(key, self.folder, first.config, probe.name, first.params, members=folders, probe=probe.name)

    def is_done(self, job: Job) -> bool:
        """Whether a job has ended well."""
        outcome = self.index.outcomes.get(job.key.content)
        return outcome is not None and outcome.status == "done"

    # What the index keeps of a job.

    def make_job(self, config: RunConfig, row: RowSpec, role: Role, point: str, params: Mapping[str, Any]) -> Job:
        """A run with its key and folder."""
        key = self.make_key(config, row, role, point=point)
        is_first = point == BASE and role != "joined" and (key.seed, key.fold) == (row.seeds[0], row.folds[0])
        return Job(key, self.folder / row.name / key.folder, config, point, params, profile=is_first)

    def make_key(
        self, config: RunConfig, row: RowSpec, role: Role, *, point: str = BASE, trial: int | None = None
    ) -> RunKey:
        """The key of a run of a row."""
        return RunKey.from_config(config, self.data[point].fingerprint, method=row.name, trial=trial, role=role)

    def index_entry(self, job: Job) -> PlannedRun:
        """The final run as the index lists it."""
        return PlannedRun(job.key, job.point, str(job.folder.relative_to(self.folder)) if job.has_folder else "")

    def known_jobs(self) -> Iterator[Job]:
        """Every final, joined and probed run that is known so far, ended or not; without the trials."""
        for row in self.rows.values():
            if self.is_tuned(self.rows[row.base or row.name]):
                yield from self.runs(row)
                yield from (job for _, job in self.joined_runs(row))
                yield from self.probe_runs(row)


def search_identity(study: StudyConfig, row: RowSpec, data_fingerprint: str) -> str:
    """Hash of all that determines the trials of a row: configuration, data, ranges, search."""
    assert study.search is not None
    config = run_config(study, row, seed=study.search.seed, fold=row.folds[0])
    inputs = {
        "run": run_inputs(config, data_fingerprint),
        "folds": row.folds,
        "search": study.search.model_dump(),
        "space": {name: [type(dimension).__name__, asdict(dimension)] for name, dimension in row.space.items()},
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def find_trials(index: StudyIndex, row: RowSpec, metric: str) -> list[ScoredTrial]:
    """The trials of a row that have ended in all folds, in order: mean over the folds of the best validation score."""
    folds = index.trials_of(row.name)
    trials: list[ScoredTrial] = []
    while all(fold in folds.get(len(trials), {}) for fold in row.folds):
        outcomes = [folds[len(trials)][fold] for fold in row.folds]
        trials.append(
            ScoredTrial(outcomes[0].params, sum(outcome.score(metric) for outcome in outcomes) / len(outcomes))
        )
    return trials


def find_choice(row: RowSpec, trials: Sequence[ScoredTrial]) -> SearchChoice | None:
    """The best trial of a row; None without trials."""
    if not trials:
        return None
    best = best_trial(trials)
    params = trials[best].params
    return SearchChoice(params, best, trials[best].score, len(trials), edge_notes(row.space, params))
