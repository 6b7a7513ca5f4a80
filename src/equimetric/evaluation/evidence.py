"""What a metric reads and returns: finished collectors in, a score with its details out."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.ops.blocks import slices

__all__ = ["Detail", "Evidence", "Score", "average_by_class", "class_averages", "exact_mean"]

Kind = TypeVar("Kind", bound=Collector)
Value = TypeVar("Value")

SUM_CHUNK_SIZE = 2**20


class Detail:
    """What a metric finds besides its value, such as a curve or a threshold; subclasses are dataclasses."""

    key: ClassVar[str | None] = None
    """Name of the entry in the JSON file; None for one entry per field."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that a reader of the value should know."""
        return ()

    def json_entries(self) -> dict[str, Any]:
        """The entries in the JSON file."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return values if self.key is None else {self.key: values}


@dataclass(frozen=True)
class Score:
    """The value of a metric, with the scores of single queries and classes where it has them.

    per_query  (N,) float64; NaN marks a query that does not count
    per_class  (C,) float64 by class number; NaN where undefined
    details    what else the metric finds
    """

    value: float
    per_query: Tensor | None = None
    per_class: Tensor | None = None
    details: tuple[Detail, ...] = ()

    @classmethod
    def from_queries(cls, per_query: Tensor) -> "Score":
        """The mean over the queries that count."""
        return cls(exact_mean(per_query), per_query)

    def average_classes(self, sets: LabelledSets) -> "Score":
        """The macro average: the mean over the classes that have a score, of the mean of each."""
        if self.per_query is not None:
            per_class = class_averages(self.per_query, sets)
        else:
            assert self.per_class is not None
            per_class = self.per_class
        return Score(exact_mean(per_class), per_class=per_class, details=self.details)


class Evidence:
    """What a metric may read: the finished collectors by their class, the sets, the options."""

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], collectors: Iterable[Collector]) -> None:
        self.sets, self.options = sets, options
        self._collectors = {type(collector): collector for collector in collectors}
        self._shared: dict[str, Any] = {}

    def __getitem__(self, kind: type[Kind]) -> Kind:
        collector = self._collectors[kind]
        assert isinstance(collector, kind)
        return collector

    def compute_once(self, name: str, compute: Callable[[], Value]) -> Value:
        """A value that several metrics read, computed once."""
        if name not in self._shared:
            self._shared[name] = compute()
        value: Value = self._shared[name]
        return value


def exact_mean(score: Tensor) -> float:
    """The mean without NaN entries; the sum has no rounding, so neither order nor threads change it."""
    valid = score[~score.isnan()]
    # In pieces: Python numbers take four times the memory.
    pieces = slices(len(valid), SUM_CHUNK_SIZE)
    total = math.fsum(chain.from_iterable(valid[piece].tolist() for piece in pieces))
    return total / len(valid) if len(valid) else math.nan


def class_averages(per_query: Tensor, sets: LabelledSets) -> Tensor:
    """The mean over the queries of each class, (C,) on the CPU; a query with several labels is one of each."""
    query, class_index = (part.cpu() for part in sets.memberships)
    return average_by_class(per_query[query], class_index, len(sets.class_labels))


def average_by_class(per_query: Tensor, query_classes: Tensor, classes: int) -> Tensor:
    """The mean of each class without NaN entries, (C,); NaN for a class without a score."""
    counts = ~per_query.isnan()
    sums = torch.zeros(classes, dtype=torch.float64).index_add_(0, query_classes, per_query.nan_to_num(0.0))
    sizes = torch.zeros(classes, dtype=torch.float64).index_add_(0, query_classes, counts.double())
    return sums / sizes.masked_fill(sizes == 0, math.nan)
