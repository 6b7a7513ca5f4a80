"""What a metric is: a family of names, the collectors it reads, and a pure function from these to a score.

A family is named by a pattern: `recall@K`, `tar@far=F`. Metrics that read the same collector share it, so that
asking for more metrics never scans twice.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.comparison import Comparison
from equimetric.evaluation.inputs import LabelledSets
from equimetric.evaluation.scan import Strip, Tile

__all__ = ["Collector", "Evidence", "MetricFamily", "Score", "exact_mean", "named_metrics"]

Kind = TypeVar("Kind", bound="Collector")
Made = TypeVar("Made")


class Collector:
    """Takes from each tile what its metrics need; built once for all metrics that read it.

    sets     the checked embeddings and classes
    options  the options of `evaluate` that the metrics own, defaults filled in
    metrics  the names asked for that read this collector, matched by their patterns
    """

    reads_tiles: ClassVar[bool] = True
    """False for what is found from embeddings and labels alone, in `finish`: it needs no scan."""

    accepts_coarse: ClassVar[bool] = False
    """True for what also makes do with tiles of bfloat16 products, within `Comparison.coarse_tolerance`."""

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[re.Match[str]]) -> None:
        self.sets, self.options, self.metrics = sets, options, metrics

    def prepare(self, comparison: Comparison) -> None:
        """Before the first tile."""

    def collect(self, tile: Tile) -> None:
        """Read one tile; its similarities are shared with other collectors and must not be changed."""

    def accepts_strips(self) -> bool:
        """Whether `collect_strip` will do in place of `collect`, where one set is compared with itself."""
        return False

    def collect_strip(self, strip: Strip) -> None:
        """Read one strip: see `scan.Strip`."""
        raise NotImplementedError

    def finish(self) -> None:
        """After the last tile."""


@dataclass(frozen=True)
class Score:
    """The value of a metric, and where they make sense the scores of single queries and classes.

    per_query  (N,) float64; NaN marks a query that is not counted
    per_class  (C,) float64 by class number; NaN where undefined
    details    what else is worth keeping, such as a curve or a threshold
    """

    value: float
    per_query: Tensor | None = None
    per_class: Tensor | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_queries(cls, per_query: Tensor) -> "Score":
        """The mean over the queries that count."""
        return cls(exact_mean(per_query), per_query)


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

    def shared(self, name: str, make: Callable[[], Made]) -> Made:
        """What several metrics read and only the first makes."""
        if name not in self._shared:
            self._shared[name] = make()
        made: Made = self._shared[name]
        return made


@dataclass(frozen=True)
class MetricFamily:
    """Metrics of one pattern of names.

    pattern     regular expression that matches a whole name; its groups are the metric's parameters
    examples    names to suggest where one was misspelt
    collectors  classes of the collectors that `score` reads
    score       pure function of the match and the evidence
    options     keyword options of `evaluate` that the family owns, with their defaults
    percent     shown as a percentage
    """

    pattern: str
    examples: tuple[str, ...]
    collectors: tuple[type[Collector], ...]
    score: Callable[[re.Match[str], Evidence], Score]
    options: Mapping[str, Any] = field(default_factory=dict)
    percent: bool = True


def named_metrics(
    names: Iterable[str], families: Sequence[MetricFamily]
) -> dict[str, tuple[re.Match[str], MetricFamily]]:
    """Each name with the family it belongs to and its match."""
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        raise EquimetricError("metrics is empty; name at least one, or leave it out for all of them")
    return {name: _family_of(name, families) for name in names}


def exact_mean(score: Tensor) -> float:
    """The mean of what is not NaN; summed without rounding, it depends on neither the order nor the threads."""
    counted = score[~score.isnan()].tolist()
    return math.fsum(counted) / len(counted) if counted else math.nan


def _family_of(name: str, families: Sequence[MetricFamily]) -> tuple[re.Match[str], MetricFamily]:
    for family in families:
        match = re.fullmatch(family.pattern, name)
        if match is not None:
            return match, family
    raise unknown_name("metric", name, [example for family in families for example in family.examples])


def class_means(per_query: Tensor, query_classes: Tensor, classes: int) -> Tensor:
    """Mean within each class of what is not NaN, (C,); NaN where nothing counts."""
    counts = ~per_query.isnan()
    sums = torch.zeros(classes, dtype=torch.float64).index_add_(0, query_classes, per_query.nan_to_num(0.0))
    sizes = torch.zeros(classes, dtype=torch.float64).index_add_(0, query_classes, counts.double())
    return sums / sizes.masked_fill(sizes == 0, math.nan)
