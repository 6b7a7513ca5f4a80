"""The output of `equimetric evaluate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from equimetric.cli.console import show
from equimetric.errors import EquimetricError
from equimetric.escaping import name_text

if TYPE_CHECKING:
    from equimetric.evaluation import Evaluation

__all__ = ["ClassNames", "EvaluationReport"]

ClassNames: TypeAlias = dict[int | str, int | str]
"""Label → printed name."""


class EvaluationReport:
    """The output of an evaluation: `document`, one JSON object, or `lines` of text."""

    def __init__(self, result: "Evaluation", metrics: list[str]) -> None:
        self.result = result
        self.metrics = metrics
        summary = result.to_dict()
        values = summary.pop("metrics")
        self.document: dict[str, Any] = {**{name: values[name] for name in metrics}, **summary}
        self.lines = [repr(result)]

    def add_class_thresholds(self, name: str, class_names: ClassNames) -> None:
        """The threshold that each class needs for a target rate."""
        from equimetric.evaluation import ClassThresholds

        detail = self.result.detail(ClassThresholds, name)
        assert detail is not None
        thresholds = detail.rename_classes(class_names)
        self.document["class_thresholds"] = thresholds.to_dict()
        self.lines.append(repr(thresholds))

    def add_intervals(self) -> None:
        """The interval of every metric that can be resampled by class."""
        candidates = {name: interval_or_none(self.result, name) for name in self.metrics}
        intervals = {name: interval for name, interval in candidates.items() if interval is not None}
        self.document["intervals"] = {name: [interval.low, interval.high] for name, interval in intervals.items()}
        self.lines.append("95 % intervals, whole classes resampled:")
        self.lines += [f"  {name}  {interval.low:.4f} to {interval.high:.4f}" for name, interval in intervals.items()]

    def add_comparison(self, other: "Evaluation", source: Path) -> None:
        """Differences to other embeddings of the same queries."""
        comparison = self.result.compare(other)
        self.document["comparison"] = comparison.to_dict()
        self.lines += [f"Compared with {name_text(str(source))}:", repr(comparison)]

    def add_figures(self, files: list[Path]) -> None:
        """The paths of figures."""
        self.lines += [f"figure: {name_text(str(file))}" for file in files]

    def show(self, as_json: bool) -> None:
        """Print the document as JSON, or the lines."""
        if as_json:
            typer.echo(json.dumps(self.document))
        else:
            show("\n".join(self.lines))


def interval_or_none(result: "Evaluation", name: str) -> Any:
    """The interval of a metric; None where it cannot be resampled by class."""
    try:
        return result.interval(name)
    except EquimetricError:
        return None
