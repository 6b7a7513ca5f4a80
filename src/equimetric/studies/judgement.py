"""Judge the methods of a study by its runs: scores of classes, intervals, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from math import isnan

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation import METRICS, Metric
from equimetric.studies.records import PLAIN, RunRecord, StudyRecord
from equimetric.studies.statistics import (
    NEW_CLASSES,
    THESE_CLASSES,
    ClassScores,
    Estimand,
    Interval,
    RowComparisons,
    TwoWayInterval,
    average_folds,
    compare_rows,
    t_interval,
    two_way_interval,
)

__all__ = ["Judgement", "higher_is_better", "judge_study", "mean_interval", "score_rows"]

ESTIMANDS: Mapping[str, Estimand] = {"seeds and classes": NEW_CLASSES, "seeds": THESE_CLASSES}

MEAN_TOLERANCE = 1e-6
"""Largest difference between a metric and the mean of its scores of classes, where the interval is for that number."""


class Judgement:
    """Verdicts on the rows of a study by one metric; None where a single row, or no scores of classes, allow none.

    `rows` are the runs of each row, by default the study's own.
    """

    def __init__(self, study: StudyRecord, metric: str, rows: Mapping[str, Sequence[RunRecord]] | None = None) -> None:
        self.study = study
        self.metric = metric
        runs_by_row = rows if rows is not None else {row: study.runs_of(row, "done") for row in study.methods}
        scores = {row: score_rows(runs, metric) for row, runs in runs_by_row.items()}
        self.scores = {row: row_scores for row, row_scores in scores.items() if row_scores is not None}
        self.trained = [row for row in self.scores if study.kind_of(row) == "trained"]

    @property
    def equivalence_margin(self) -> float:
        """Differences that do not matter, in the metric's own unit."""
        return self.study.statistics.equivalence / 100

    @cached_property
    def pairs(self) -> RowComparisons | None:
        """Every trained row against every other."""
        return self._compare({row: self.scores[row] for row in self.trained}, None)

    @cached_property
    def against_baseline(self) -> RowComparisons | None:
        """Every row against the one that the study compares with."""
        return None if self.baseline is None else self.against(self.baseline)

    def against(self, row: str) -> RowComparisons | None:
        """Every row against one of them; None where that has no scores of classes."""
        return self._compare(self.scores, row) if row in self.scores else None

    @property
    def baseline(self) -> str | None:
        """The row that others are compared with: the one that the study names, else its first method."""
        explicit = self.study.statistics.baseline
        if explicit in self.scores:
            return explicit
        trained = [row for row in self.study.methods if row in self.trained]
        return trained[0] if trained else None

    def _compare(self, rows: Mapping[str, ClassScores], baseline: str | None) -> RowComparisons | None:
        if len(rows) < 2 or len({scores.classes for scores in rows.values()}) > 1:
            return None
        return compare_rows(
            rows,
            baseline=baseline,
            equivalence_margin=self.equivalence_margin,
            estimand=ESTIMANDS[self.study.statistics.estimand],
            confidence=self.study.statistics.confidence,
            higher_is_better=higher_is_better(self.metric),
        )


@lru_cache(maxsize=2)
def judge_study(study: StudyRecord) -> Judgement:
    """The verdicts on the study's own rows by its primary metric, computed once."""
    return Judgement(study, study.primary_metric)


def score_rows(runs: Sequence[RunRecord], metric: str) -> ClassScores | None:
    """The scores of a row's seeds on every test class, folds averaged; None where they are not those of the metric.

    Seeds that miss a fold are left out. A row with a single run has no seeds, where nothing in it is random.
    """
    by_seed: dict[int, list[RunRecord]] = {}
    for run in runs:
        if metric in run.per_class and run.classes is not None and run.status == "done":
            by_seed.setdefault(run.seed, []).append(run)
    folds = max((len(seed_runs) for seed_runs in by_seed.values()), default=0)
    complete = {seed: seed_runs for seed, seed_runs in by_seed.items() if len(seed_runs) == folds}
    if not complete or len({run.classes for seed_runs in complete.values() for run in seed_runs}) != 1:
        return None
    class_list = next(iter(complete.values()))[0].classes
    assert class_list is not None
    values = np.stack([np.stack([run.per_class[metric] for run in seed_runs]) for seed_runs in complete.values()])
    scores = ClassScores(
        average_folds(values),
        seeds=None if is_deterministic(runs) else list(complete),
        classes=class_list.labels,
        weights=class_list.weights(),
    )
    printed = np.mean([np.mean([run.metrics[metric] for run in seed_runs]) for seed_runs in complete.values()])
    # Queries without a score, or a metric that is no mean over queries: the interval would be for another number.
    differs = not np.isfinite(values).all() or abs(scores.mean - printed) > MEAN_TOLERANCE
    return None if differs else scores


def is_deterministic(runs: Sequence[RunRecord]) -> bool:
    """Whether a row is a baseline of one seed, without randomness."""
    return all(run.kind == "baseline" for run in runs) and len({run.seed for run in runs}) == 1


def mean_interval(
    study: StudyRecord, row: str, metric: str, runs: Sequence[RunRecord]
) -> TwoWayInterval | Interval | None:
    """The mean of a row with its interval: over seeds and classes, or over seeds where there are no scores of classes.

    None where no run measured the metric.
    """
    settings = study.statistics
    scores = score_rows(runs, metric)
    if scores is not None and study.values_by_seed(row, metric, runs):
        return two_way_interval(scores, estimand=ESTIMANDS[settings.estimand], confidence=settings.confidence)
    values = study.values_by_seed(row, metric, runs)
    return t_interval(list(values.values()), settings.confidence) if values else None


def higher_is_better(metric: str) -> bool:
    """Whether larger values of a metric are better; true for one that this version does not know."""
    try:
        return METRICS[Metric.parse(metric.removesuffix(PLAIN)).family].higher_is_better
    except EquimetricError:
        return True


def known_half_width(interval: TwoWayInterval | Interval) -> float:
    """Half width; NaN where one seed leaves it unknown."""
    width = interval.half_width
    return float("nan") if isnan(width) or getattr(interval, "seeds_unknown", False) else width
