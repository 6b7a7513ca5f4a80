"""The input of a report: the runs of a study and the conditions they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError, unknown_name
from equimetric.search_space import SearchSpace
from equimetric.studies.configuration import StatisticsConfig
from equimetric.studies.embeddings_record import EmbeddingsRecord
from equimetric.studies.ledger.record import Ledger
from equimetric.studies.outcomes import ClassList
from equimetric.studies.profiles import MethodProfile, StudyImages
from equimetric.studies.query_scores import Image, QueryComparison
from equimetric.studies.search import ScoredTrial, SearchChoice

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "PLAIN",
    "GalleryRow",
    "Image",
    "Kind",
    "Neighbour",
    "RunRecord",
    "SearchRecord",
    "Status",
    "StudyRecord",
]

NAMED_METHODS = 3
"""Methods named in full where several share a note."""

PLAIN = " plain"
"""End of the name of a metric that was measured without the cohort."""

Neighbour: TypeAlias = tuple[Image, str, bool]
"""A retrieved image, its class name, and whether it has the query's label."""

Kind: TypeAlias = Literal["trained", "baseline"]
Status: TypeAlias = Literal["done", "failed"]


@dataclass(frozen=True)
class RunRecord:
    """One run of one method: its metrics, its training log, its notes, and the error if it failed.

    Attributes:
        memory: peak of the process and of its device, in bytes; empty where it is not known.
        cost: parameters, training_only, forward_passes, dim; members, diversity: of an ensemble, on the test images.
        fold: block of classes that validated; −1 for joined fold models.
        point: point of a sweep; '' for the study itself.
        per_class: metric → score of every test class, in the order of `classes`.
        classes: the test classes, None where the run has no scores of classes.
        code: fingerprint of the code that computed it; '' where it is not known.
        folder: path of the run's folder below the study's; '' where it is missing.
    """

    method: str
    kind: Kind
    seed: int
    status: Status
    error: str | None
    metrics: Mapping[str, float]
    history: tuple[Mapping[str, object], ...]
    seconds: float
    parameters: int
    memory: Mapping[str, int] = field(default_factory=dict)
    cost: Mapping[str, int] = field(default_factory=dict)
    members: tuple[Mapping[str, Any], ...] = ()
    diversity: Mapping[str, float | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fold: int = 0
    point: str = ""
    per_class: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    classes: ClassList | None = None
    code: str = ""
    folder: str = ""

    def validation(self, metric: str) -> dict[int, float]:
        """Step → value of a metric on the validation classes, where it was logged and is finite."""
        points: dict[int, float] = {}
        for entry in self.history:
            step, value = entry.get("step"), entry.get(metric)
            if entry.get("kind") == "validation" and isinstance(step, int) and isinstance(value, int | float):
                points[step] = float(value)
        return {step: value for step, value in sorted(points.items()) if isfinite(value)}


@dataclass(frozen=True, eq=False)
class SearchRecord:
    """The search of one row: what was tuned in which ranges, every trial in order, and what was chosen."""

    space: Mapping[str, SearchSpace]
    trials: tuple[ScoredTrial, ...]
    choice: SearchChoice | None
    budget: int


@dataclass(frozen=True, eq=False)
class GalleryRow:
    """A query and its neighbours, nearest first. Compared by identity, because it holds arrays."""

    query: Image
    query_name: str
    neighbours: tuple[Neighbour, ...]

    def __post_init__(self) -> None:
        for image in (self.query, *(image for image, _, _ in self.neighbours)):
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[0] not in (1, 3) or image.size == 0:
                raise EquimetricError(
                    f"a gallery image must be a uint8 array of shape (1 or 3, height, width), "
                    f"but the row of {self.query_name!r} holds {image.dtype} of shape {image.shape}; convert it first"
                )


@dataclass(frozen=True, eq=False)
class StudyRecord:
    """A study: its runs, the conditions they share, and sentences on what it shows and does not show.

    Attributes:
        runs: the final runs of the study itself, and its baselines.
        joined_runs: fold models side by side, a run for each repetition.
        sweep_runs: the final runs at the points of sweeps.
        probe_runs: further measurements of final runs; `point` is the name of the probe.
        shifts: point of a sweep → distance of its test classes from the training classes, where that is known.
        searches: by row, where parameters were tuned.
        recipes: row → method and options, of trained rows.
        tuned: row → options that a search chose for its method; they take the place of those in `recipes`.
        row_settings: row → what is set for it alone, in words.
        planned: row → final runs that the study plans; empty where that is not known.
        dataset: name of the data.
        protocol: name and version; `departures` are the keys in which the study differs from it.
        primary_metric: orders the methods and is plotted; larger must be better.
        across: "item" or "class" where one modality is searched for by the other.
        table_metrics: the metrics that become columns of the table; empty for all measured ones.
        statistics: how differences are judged.
        ledger: the fairness ledger, where it was checked.
        configuration: the complete TOML file that repeats the study or the run.
        fingerprint: hash of the data: images, labels, class names.
        environment: versions and hardware of its runs, as far as they are known.
        test_accesses: command → how often it opened the test classes of the runs.
        queries: scores of single test queries, where runs have kept them.
        spaces: row → test embeddings of its first run, where its model is at hand.
        profiles: row → thresholds, neighbours and map of its first run, where that has stored them.
        images: the data set of the study, where it is at hand.
    """

    name: str
    title: str
    statement: tuple[str, ...]
    conditions: Mapping[str, str]
    runs: tuple[RunRecord, ...]
    galleries: Mapping[str, tuple[GalleryRow, ...]] = field(default_factory=dict)
    primary_metric: str = "map@r"
    across: str | None = None
    table_metrics: tuple[str, ...] = ()
    joined_runs: tuple[RunRecord, ...] = ()
    sweep_runs: tuple[RunRecord, ...] = ()
    probe_runs: tuple[RunRecord, ...] = ()
    shifts: Mapping[str, float] = field(default_factory=dict)
    searches: Mapping[str, SearchRecord] = field(default_factory=dict)
    recipes: Mapping[str, tuple[str, Mapping[str, object]]] = field(default_factory=dict)
    tuned: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    row_settings: Mapping[str, str] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    dataset: str = ""
    protocol: str = ""
    departures: Mapping[str, str] = field(default_factory=dict)
    statistics: StatisticsConfig = field(default_factory=StatisticsConfig)
    ledger: Ledger | None = None
    configuration: str = ""
    fingerprint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    test_accesses: Mapping[str, int] = field(default_factory=dict)
    queries: QueryComparison | None = None
    spaces: Mapping[str, EmbeddingsRecord] = field(default_factory=dict)
    profiles: Mapping[str, MethodProfile] = field(default_factory=dict)
    images: StudyImages | None = None

    def __post_init__(self) -> None:
        if not self.runs:
            raise EquimetricError(f"study {self.name!r} has no runs to report; run it first")
        self._check_one_kind_per_method()
        self._check_one_run_per_seed()
        for method in self.galleries:
            if method not in self.methods:
                raise unknown_name("method with a gallery", method, self.methods)
        metrics = {metric for run in self.runs if run.status == "done" for metric in run.metrics}
        if self.primary_metric not in metrics and any(run.status == "done" for run in self.runs):
            raise unknown_name("primary metric", self.primary_metric, metrics)

    @property
    def methods(self) -> tuple[str, ...]:
        """All methods, in the order of their first runs."""
        return tuple(dict.fromkeys(run.method for run in self.runs))

    @property
    def failed(self) -> tuple[RunRecord, ...]:
        """The failed runs."""
        return tuple(run for run in self._runs_in_order() if run.status == "failed")

    @property
    def missing(self) -> dict[str, int]:
        """Row → planned runs that have not ended; without the rows that are complete."""
        missing = {row: count - len(self.all_runs_of(row)) for row, count in self.planned.items()}
        return {row: count for row, count in missing.items() if count > 0}

    @property
    def notes(self) -> tuple[tuple[RunRecord, str], ...]:
        """All notes of runs: each with its run."""
        return tuple((run, note) for run in self._runs_in_order() for note in run.notes)

    def _runs_in_order(self) -> list[RunRecord]:
        """The runs by row, seed and fold, whatever the order in which they ended."""
        order = {row: place for place, row in enumerate(self.planned)}
        return sorted(
            self.runs, key=lambda run: (order.get(run.method, len(order)), run.method, run.seed, run.fold, run.point)
        )

    @property
    def grouped_failures(self) -> tuple[tuple[str, str], ...]:
        """Reasons of failed runs, each once: ('gap, 3 of 3 runs, such as seed 0', reason)."""
        groups: dict[str, dict[str, list[tuple[RunRecord, str]]]] = {}
        for run in self.failed:
            reason = run.error or "no reason was recorded"
            groups.setdefault(reason, {}).setdefault(run.method, []).append((run, reason))
        return tuple((self._describe_sources([*rows.items()]), reason) for reason, rows in groups.items())

    @property
    def grouped_notes(self) -> tuple[tuple[str, str], ...]:
        """Notes of each method's runs, those with a common beginning merged: ('margin, 3 of 10 runs', first note).

        Methods with the same note share a line.
        """
        groups: dict[tuple[str, str], list[tuple[RunRecord, str]]] = {}
        for run, note in self.notes:
            groups.setdefault((run.method, note.partition(":")[0]), []).append((run, note))
        by_note: dict[str, list[tuple[str, list[tuple[RunRecord, str]]]]] = {}
        for (method, _), noted in groups.items():
            by_note.setdefault(noted[0][1], []).append((method, noted))
        return tuple((self._describe_sources(methods), note) for note, methods in by_note.items())

    def _describe_sources(self, groups: Sequence[tuple[str, Sequence[tuple[RunRecord, str]]]]) -> str:
        """'margin, seed 3', 'margin, 3 of 10 runs, such as seed 0', 'margin, triplet and 4 more methods, 17 runs'."""
        (method, noted), *others = groups
        if others:
            names = [name for name, _ in groups]
            names_text = ", ".join(names[:NAMED_METHODS])
            rest_text = f" and {len(names) - NAMED_METHODS} more methods" if len(names) > NAMED_METHODS else ""
            return f"{names_text}{rest_text}, {sum(len(run_notes) for _, run_notes in groups)} runs"
        first = f"{method}, seed {noted[0][0].seed}"
        runs = len(self.all_runs_of(method))
        return first if len(noted) == 1 else f"{method}, {len(noted)} of {runs} runs, such as seed {noted[0][0].seed}"

    def frame(self) -> DataFrame:
        """One row for each run: method, kind, point, seed, fold, status, metrics, time; joined and swept runs, too."""
        from pandas import DataFrame

        return DataFrame(
            [
                {
                    "method": run.method,
                    "kind": "joined" if run in self.joined_runs else run.kind,
                    "point": run.point,
                    "seed": run.seed,
                    "fold": run.fold,
                    "status": run.status,
                    **run.metrics,
                    "seconds": run.seconds,
                    "parameters": run.parameters,
                    "code": run.code,
                    "error": run.error,
                }
                for run in (*self.runs, *self.joined_runs, *self.sweep_runs)
            ]
        )

    def trials_frame(self) -> DataFrame:
        """One row for each trial of a search: method, number from 1 on, parameters, score."""
        from pandas import DataFrame

        return DataFrame(
            [
                {"method": method, "trial": number, **trial.params, "score": trial.score}
                for method, search in self.searches.items()
                for number, trial in enumerate(search.trials, 1)
            ]
        )

    def runs_of(self, method: str, status: Status) -> tuple[RunRecord, ...]:
        """The finished or the failed runs of one method."""
        return tuple(run for run in self.runs if run.method == method and run.status == status)

    def all_runs_of(self, method: str) -> tuple[RunRecord, ...]:
        """All runs of one method."""
        return tuple(run for run in self.runs if run.method == method)

    def kind_of(self, method: str) -> Kind:
        """Whether a method was trained or is a baseline."""
        return next(run.kind for run in self.runs if run.method == method)

    def values(self, method: str, metric: str) -> tuple[float, ...]:
        """One value per seed, the mean over its folds, where all of them are finished and finite."""
        return tuple(self.values_by_seed(method, metric).values())

    def values_by_seed(self, method: str, metric: str, runs: Sequence[RunRecord] | None = None) -> dict[int, float]:
        """Seed → value, as `values`; of other runs than the study's own where they are given."""
        by_seed: dict[int, list[float]] = {}
        for run in self.runs if runs is None else runs:
            if run.method == method:
                value = run.metrics.get(metric) if run.status == "done" else None
                by_seed.setdefault(run.seed, []).append(nan if value is None else float(value))
        means = {seed: sum(folds) / len(folds) for seed, folds in by_seed.items()}
        return {seed: value for seed, value in means.items() if isfinite(value)}

    def _check_one_kind_per_method(self) -> None:
        for method in self.methods:
            if len({run.kind for run in self.runs if run.method == method}) > 1:
                raise EquimetricError(
                    f"method {method!r} has both trained and baseline runs; give the baseline a name of its own"
                )

    def _check_one_run_per_seed(self) -> None:
        keys: set[tuple[str, int, int]] = set()
        for run in self.runs:
            if (run.method, run.seed, run.fold) in keys:
                raise EquimetricError(
                    f"method {run.method!r} has more than one run with seed {run.seed}, "
                    "which would count one seed twice; keep one run per method and seed"
                )
            keys.add((run.method, run.seed, run.fold))
