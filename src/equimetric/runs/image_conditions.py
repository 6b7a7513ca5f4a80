"""A finished run on test images under conditions: noise, blur, compression, contrast, occlusion, crops, viewpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equimetric.data import ImageCondition, list_conditions, parse_condition
from equimetric.data.image_conditions import ConditionKind
from equimetric.evaluation import METRICS, Metric, format_score, parse_metrics
from equimetric.runs.evaluation import evaluate_defined, open_run

__all__ = ["ConditionTable", "evaluate_conditions"]

KINDS: dict[ConditionKind, str] = {"corruption": "corruptions", "viewpoint": "crops and viewpoints"}
"""Kinds of conditions, as a table names them."""


@dataclass(frozen=True, eq=False)
class ConditionTable:
    """The metrics of a run on clean images and under each condition.

    clean  metric → value, as in the result of the run
    under  condition, such as "blur:2" → metric → value
    """

    clean: Mapping[str, float]
    under: Mapping[str, Mapping[str, float]]

    def drop(self, condition: str, metric: str) -> float:
        """Relative loss of a metric against its clean value: (clean − value) / clean; NaN where that is 0."""
        clean, value = self.clean[metric], self.under[condition][metric]
        better = 1 if METRICS[Metric.parse(metric).family].higher_is_better else -1
        return better * (clean - value) / clean if clean else math.nan

    def mean_drop(self, metric: str, kind: ConditionKind) -> float:
        """The mean over all conditions of a kind; NaN where there are none."""
        drops = [self.drop(name, metric) for name in self.names(kind)]
        return math.fsum(drops) / len(drops) if drops else math.nan

    def names(self, kind: ConditionKind) -> list[str]:
        """The conditions of a kind that were evaluated."""
        return [name for name in self.under if parse_condition(name).record.kind == kind]

    def to_dict(self) -> dict[str, Any]:
        """The table in plain types, ready for JSON; NaN as null."""
        means = {
            kind: {metric: _number(self.mean_drop(metric, kind)) for metric in self.clean}
            for kind in KINDS
            if self.names(kind)
        }
        under = {name: {metric: _number(value) for metric, value in row.items()} for name, row in self.under.items()}
        return {"clean": dict(self.clean), "under": under, "mean_relative_drop": means}

    def __str__(self) -> str:
        metrics = list(self.clean)
        lines = [["", *metrics], ["clean", *(format_score(name, self.clean[name]) for name in metrics)]]
        for condition, row in self.under.items():
            lines.append([condition, *(format_score(name, row[name]) for name in metrics)])
        for kind, title in KINDS.items():
            if self.names(kind):
                lines.append([f"mean drop, {title}", *(f"{self.mean_drop(name, kind):.1%}" for name in metrics)])
        table = [[cell.strip() for cell in line] for line in lines]
        name_width, *widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join("  ".join([name.ljust(name_width), *map(str.rjust, cells, widths)]) for name, *cells in table)


def evaluate_conditions(
    folder: str | Path,
    conditions: Iterable[str] | None = None,
    *,
    metrics: Sequence[str] | None = None,
    part: str = "test",
    progress: Callable[[str], None] | None = None,
) -> ConditionTable:
    """Evaluate a run on its test images as they are and under conditions, by default all 24, at three levels each.

    The model, view and cohort are those of the run, and so are the metrics unless others are named; one that
    embeddings leave undefined is NaN.
    `progress` is called with the name of every condition before it is evaluated.
    """
    chosen: list[ImageCondition] = list_conditions() if conditions is None else list(map(parse_condition, conditions))
    run = open_run(folder)
    evaluation = run.config.evaluation
    if metrics is not None:
        evaluation = evaluation.model_copy(update={"metrics": list(metrics), "ks": None, "selected_by": metrics[0]})
        parse_metrics(metrics)

    def measure(condition: str | None) -> dict[str, float]:
        if progress is not None:
            progress(condition or "clean")
        return dict(evaluate_defined(run.embed(part, condition=condition), evaluation)[0])

    return ConditionTable(measure(None), {str(condition): measure(str(condition)) for condition in chosen})


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
