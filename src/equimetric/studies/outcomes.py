"""The outcome of a finished or failed run as plain values: scores, validation curve, scores of classes."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equimetric.runs.folder import RunFolder
from equimetric.runs.key import RunKey
from equimetric.runs.result import RunResult

__all__ = ["ClassList", "Outcome", "make_outcome"]

Curve = tuple[tuple[int, float], ...]
"""(step, value), … of the validation metric that selects."""


@dataclass(frozen=True)
class ClassList:
    """The test classes of runs: labels, names, and how many queries each has.

    Attributes:
        identity: hash of the rest; outcomes name it.
    """

    labels: tuple[int, ...]
    names: tuple[str, ...]
    queries: tuple[int, ...]

    @property
    def identity(self) -> str:
        """Hash of labels, names and numbers of queries."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:12]

    def weights(self) -> NDArray[np.float64]:
        """(C,) share of each class in the queries."""
        queries = np.asarray(self.queries, dtype=np.float64)
        return np.asarray(queries / queries.sum())


@dataclass(frozen=True, eq=False)
class Outcome:
    """The end of one run.

    Attributes:
        key: key of the run, with the hash of all its inputs.
        point: point of a sweep; '' for the study itself.
        metrics, plain: on the test classes, with the cohort and without it; empty for trials, which never see them.
        validation: the best scores on the validation classes.
        curve: the validation metric that selects, by step.
        params: values that a search tried or chose.
        search: hash of the search that a trial belongs to.
        memory: the values of `Memory`; empty where it is not known.
        cost: `Cost` of the model; members, diversity: `MemberResult` and `Diversity` of an ensemble.
        classes: identity of the list of test classes, and `per_class` the scores of each by metric.
        code: fingerprint of the code that computed it.
    """

    key: RunKey
    status: Literal["done", "failed"]
    metrics: Mapping[str, float] = field(default_factory=dict)
    plain: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)
    curve: Curve = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    search: str = ""
    best_step: int = 0
    steps: int = 0
    seconds: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict)
    parameters: int = 0
    cost: Mapping[str, int] = field(default_factory=dict)
    members: tuple[Mapping[str, Any], ...] = ()
    diversity: Mapping[str, float | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str | None = None
    traceback: str | None = None
    classes: str = ""
    per_class: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    code: str = ""

    def score(self, metric: str) -> float:
        """The value that a search maximises: the best validation score; 0 for a failed run or a NaN score."""
        value = self.validation.get(metric, 0.0)
        return value if self.status == "done" and isfinite(value) else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {name: value for name, value in vars(self).items() if value not in ({}, (), "", None, 0)}
        values["key"] = asdict(self.key)
        if len(self.per_class):
            values["per_class"] = {name: pack(array) for name, array in self.per_class.items()}
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """The outcome behind the values of `to_json`."""
        fields = dict(values)
        fields["key"] = RunKey(**fields["key"])
        fields |= {name: tuple(fields.get(name, ())) for name in ("notes", "members")}
        fields["curve"] = tuple((int(step), float(value)) for step, value in fields.get("curve", ()))
        fields["per_class"] = {name: unpack(text) for name, text in fields.get("per_class", {}).items()}
        return cls(**fields)


def make_outcome(
    key: RunKey,
    folder: RunFolder,
    result: RunResult,
    class_names: Sequence[str],
    *,
    selected_by: str,
    params: Mapping[str, Any] | None = None,
    code: str = "",
) -> tuple[Outcome, ClassList | None]:
    """The outcome of a run that has ended, and its test classes where it has scores of queries."""
    class_list: ClassList | None = None
    per_class: dict[str, NDArray[np.float64]] = {}
    curve: Curve = ()
    if result.status == "done":
        curve = validation_curve(folder, selected_by)
        if folder.has_per_query():
            class_list, per_class = class_scores(folder.per_query(), class_names)
    return (
        Outcome(
            key,
            result.status,
            metrics=result.metrics,
            plain=result.plain,
            validation=result.validation,
            curve=curve,
            params=params or {},
            best_step=result.best_step,
            steps=result.steps,
            seconds=result.seconds,
            memory=result.memory.model_dump(exclude_none=True) if result.memory else {},
            parameters=result.parameters,
            cost=result.cost.model_dump() if result.cost else {},
            members=tuple(member.model_dump() for member in result.members),
            diversity=result.diversity.model_dump() if result.diversity else {},
            notes=result.notes,
            error=result.error,
            traceback=result.traceback,
            classes=class_list.identity if class_list else "",
            per_class=per_class,
            code=code,
        ),
        class_list,
    )


def class_scores(
    per_query: Mapping[str, NDArray[Any]], class_names: Sequence[str]
) -> tuple[ClassList, dict[str, NDArray[np.float64]]]:
    """The mean of every per-query score over the queries of each class; NaN scores of queries are left out."""
    labels, position, counts = np.unique(per_query["labels"], return_inverse=True, return_counts=True)
    class_list = ClassList(
        tuple(labels.tolist()),
        tuple(class_names[label] if label < len(class_names) else str(label) for label in labels.tolist()),
        tuple(counts.tolist()),
    )
    scores = {}
    for name, values in per_query.items():
        if name in ("index", "labels", "neighbours") or values.ndim != 1:
            continue
        valid = np.isfinite(values.astype(np.float64))
        sums = np.bincount(position[valid], values[valid].astype(np.float64), len(labels))
        with np.errstate(invalid="ignore", divide="ignore"):
            scores[name] = sums / np.bincount(position[valid], minlength=len(labels))
    return class_list, scores


def validation_curve(folder: RunFolder, metric: str) -> Curve:
    """Step and value of every validation of a run."""
    lines = (line for line in folder.history() if line.get("kind") == "validation")
    return tuple((int(line["step"]), float(line[metric])) for line in lines if metric in line)


def pack(array: NDArray[np.float64]) -> str:
    """An array of numbers as text."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array, dtype="<f8").tobytes(), 9)).decode()


def unpack(text: str) -> NDArray[np.float64]:
    """The array behind the text of `pack`."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<f8").copy()
