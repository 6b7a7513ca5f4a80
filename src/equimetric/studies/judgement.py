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
    count_comparisons,
    t_interval,
    two_way_interval,
)

__all__ = ["Judgement", "higher_is_better", "judge_study", "mean_interval", "score_rows"]

ESTIMANDS: Mapping[str, Estimand] = {"seeds and classes": NEW_CLASSES, "seeds": THESE_CLASSES}

MEAN_TOLERANCE = 1e-6
"""Largest difference between a metric and the mean of its scores of classes, where the interval is for that number."""


class Judgement:
    """All verdicts of one table: every row against every other, by every metric that is judged.

    They are one family of statements, which hold together; whatever a table, a page or a figure says of differences
    comes from here. `rows` are the runs of each row, by default the study's own.
    """

    def __init__(self, study: StudyRecord, rows: Mapping[str, Sequence[RunRecord]] | None = None) -> None:
        self.study = study
        self.metric = study.primary_metric
        runs_by_row = rows if rows is not None else {row: study.runs_of(row, "done") for row in study.methods}
        self._scores = {metric: scores_of_rows(runs_by_row, metric) for metric in judged_metrics(study)}
        self.trained = [row for row in runs_by_row if study.kind_of(row) == "trained"]

    @property
    def scores(self) -> Mapping[str, ClassScores]:
        """Row → its scores of classes by the primary metric."""
        return self._scores[self.metric]

    def scores_by(self, metric: str) -> Mapping[str, ClassScores]:
        """Row → its scores of classes by a metric that is judged."""
        return self._scores[metric]

    @cached_property
    def comparisons(self) -> Mapping[str, RowComparisons]:
        """Metric → all pairs of rows; without metrics by which no two rows can be compared."""
        by_metric = {metric: rows for metric, rows in self._scores.items() if are_comparable(rows)}
        count = sum(map(count_comparisons, by_metric.values()))
        return {
            metric: compare_rows(
                rows,
                equivalence_margin=self.study.statistics.equivalence / 100,
                estimand=ESTIMANDS[self.study.statistics.estimand],
                confidence=self.study.statistics.confidence,
                higher_is_better=higher_is_better(metric),
                alike=self.trained,
                comparisons=count,
            )
            for metric, rows in by_metric.items()
        }

    @property
    def rows(self) -> RowComparisons | None:
        """All pairs of rows by the primary metric; None where there are none."""
        return self.comparisons.get(self.metric)

    @cached_property
    def methods(self) -> RowComparisons | None:
        """The pairs of trained rows alone; None where there are none."""
        return self.methods_by(self.metric)

    def methods_by(self, metric: str) -> RowComparisons | None:
        """The pairs of trained rows by another metric."""
        found = self.comparisons.get(metric)
        among = None if found is None else found.among(self.trained)
        return among if among is not None and among.comparisons else None

    @property
    def references(self) -> tuple[str, ...]:
        """The rows that every table compares with: the study's baseline, and the best row that is not trained."""
        if self.rows is None or self.baseline is None:
            return ()
        known = (row for row, interval in self.rows.rows.items() if not interval.seeds_unknown)
        untrained = [row for row in known if row not in self.trained]
        return tuple(dict.fromkeys([self.baseline, *untrained[:1]]))

    @property
    def baseline(self) -> str | None:
        """The row that others are compared with: the one that the study names, else its first method."""
        explicit = self.study.statistics.baseline
        if explicit in self.scores:
            return explicit
        trained = [row for row in self.study.methods if row in self.trained and row in self.scores]
        return trained[0] if trained else None


def judged_metrics(study: StudyRecord) -> tuple[str, ...]:
    """The primary metric, and Recall@1 where it is in the table."""
    also = ["recall@1"] if not study.table_metrics or "recall@1" in study.table_metrics else []
    return tuple(dict.fromkeys([study.primary_metric, *also]))


def scores_of_rows(runs: Mapping[str, Sequence[RunRecord]], metric: str) -> dict[str, ClassScores]:
    """Row → its scores of classes, where it has them."""
    scores = {row: score_rows(row_runs, metric) for row, row_runs in runs.items()}
    return {row: row_scores for row, row_scores in scores.items() if row_scores is not None}


def are_comparable(rows: Mapping[str, ClassScores]) -> bool:
    """Whether there are two rows, all with the same classes."""
    return len(rows) > 1 and len({scores.classes for scores in rows.values()}) == 1


@lru_cache(maxsize=2)
def judge_study(study: StudyRecord) -> Judgement:
    """The verdicts on the study's own rows, computed once."""
    return Judgement(study)


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
