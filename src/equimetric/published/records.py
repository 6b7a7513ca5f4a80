"""The results that four papers print, one record per cell of their tables."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from equimetric.errors import unknown_name
from equimetric.objectives.published import PUBLISHED
from equimetric.other_names import simplify
from equimetric.published.names import OUR_DATASETS, PAPERS, find_backbone, find_dataset, find_metric, find_paper

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "RESULT_FIELDS",
    "PublishedResult",
    "ResultFilters",
    "describe_result",
    "optional",
    "read_data",
    "read_results",
    "results",
    "select_results",
]

Number = TypeVar("Number", int, float)
VARIANTS = ("concatenated", "separated")


@dataclass(frozen=True)
class PublishedResult:
    """One cell of a published table, in the paper's words, and what they are called here.

    Attributes:
        paper: short name, a key of `PAPERS`.
        table: the table's label or caption.
        dataset, backbone, method, metric: as printed; a backbone that the paper does not name is None.
        dim: dimension of the embedding.
        variant: of the Reality Check, 'separated' for the mean over four models, 'concatenated' for all four together.
        value: in percent, OPIS in thousandths; None where the paper prints none, or it is not legible.
        half_width: of the 95 % t-interval over ten runs.
        quoted: whether the authors quote the number from the method's own paper instead of measuring it.
        note: conditions that differ from those of the rest of the table.
        doubt: why the number is not to be trusted, empty where nothing speaks against it.

    """

    paper: str
    table: str
    dataset: str
    backbone: str | None
    dim: int | None
    variant: str | None
    method: str
    metric: str
    value: float | None
    half_width: float | None
    quoted: bool
    note: str
    doubt: str

    @property
    def doubtful(self) -> bool:
        """Whether the number is not to be trusted."""
        return bool(self.doubt)

    @property
    def our_dataset(self) -> str | None:
        """The argument of `load_dataset`."""
        return OUR_DATASETS.get(self.dataset)

    @property
    def our_metric(self) -> str | None:
        """The metric's name in `evaluate`."""
        return find_metric(self.metric)

    @property
    def our_method(self) -> str | None:
        """The method that reproduces the row; None for networks that are not trained."""
        return self._recipe()[0]

    @property
    def our_options(self) -> dict[str, Any] | None:
        """The options with which it does."""
        return self._recipe()[1]

    def _recipe(self) -> tuple[str | None, dict[str, Any] | None]:
        return PUBLISHED[PAPERS[self.paper]].get(self.method, (None, None))


Check = Callable[[PublishedResult], bool]


class ResultFilters(TypedDict, total=False):
    """The filters of `select_results`."""

    paper: str | None
    dataset: str | None
    method: str | None
    metric: str | None
    backbone: str | None
    dim: int | None
    variant: str | None


def read_data(name: str) -> Iterator[dict[str, str]]:
    """The rows of a table of this package; empty cells are empty texts."""
    text = (files("equimetric.published") / f"{name}.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


def optional(parse: Callable[[str], Number], text: str) -> Number | None:
    """The number that a cell holds; None for an empty one."""
    return parse(text) if text else None


@cache
def read_results() -> tuple[PublishedResult, ...]:
    """All 883 results, in the order of papers, tables and rows."""
    return tuple(
        PublishedResult(
            paper=row["paper"],
            table=row["table"],
            dataset=row["dataset"],
            backbone=row["backbone"] or None,
            dim=optional(int, row["dim"]),
            variant=row["variant"] or None,
            method=row["method"],
            metric=row["metric"],
            value=optional(float, row["value"]),
            half_width=optional(float, row["half_width"]),
            quoted=bool(row["quoted"]),
            note=row["note"],
            doubt=row["doubt"],
        )
        for row in read_data("results")
    )


def select_results(**filters: Unpack[ResultFilters]) -> tuple[PublishedResult, ...]:
    """The results that pass the filters: paper, dataset, method, metric, backbone, dim, variant; None passes all.

    Names are those of the papers or ours: 'MS+Miner' and 'multi_similarity_miner', 'P@1' and 'recall@1', 'SOP' and
    'online_products'. A name that no paper has raises an error that gives the nearest.
    """
    passes = []
    for name, value in filters.items():
        if name not in FILTERS:
            raise unknown_name("filter of published results", name, FILTERS)
        if value is not None:
            passes.append(FILTERS[name](value))
    return tuple(result for result in read_results() if all(keeps(result) for keeps in passes))


def results(**filters: Unpack[ResultFilters]) -> "DataFrame":
    """The results that pass the filters of `select_results`, one row each: all fields, and what they are here."""
    from pandas import DataFrame

    return DataFrame([describe_result(result) for result in select_results(**filters)], columns=[*RESULT_FIELDS])


def describe_result(result: PublishedResult) -> dict[str, Any]:
    """A result as a flat record."""
    return {field: getattr(result, field) for field in RESULT_FIELDS}


def _match_paper(name: str) -> Check:
    paper = find_paper(name)
    return lambda result: result.paper == paper


def _match_dataset(name: str) -> Check:
    dataset = find_dataset(name)
    return lambda result: result.dataset == dataset


def _match_method(name: str) -> Check:
    printed = {result.method for result in read_results()}
    our_names = {result.our_method for result in read_results() if result.our_method is not None}
    if name not in our_names and simplify(name) not in map(simplify, printed):
        raise unknown_name("method with published results", name, printed | our_names)
    return lambda result: result.our_method == name or simplify(result.method) == simplify(name)


def _match_metric(name: str) -> Check:
    our_name = find_metric(name)
    our_names = {result.our_metric for result in read_results() if result.our_metric is not None}
    printed = {result.metric for result in read_results() if result.our_metric is None}
    if our_name not in our_names and name not in printed:
        raise unknown_name("metric with published results", name, our_names | printed)
    return lambda result: result.metric == name if our_name is None else result.our_metric == our_name


def _match_backbone(name: str) -> Check:
    backbone = find_backbone(name)
    return lambda result: result.backbone is not None and find_backbone(result.backbone) == backbone


def _match_dimension(dim: int) -> Check:
    return lambda result: result.dim == dim


def _match_variant(name: str) -> Check:
    if name not in VARIANTS:
        raise unknown_name("variant", name, VARIANTS)
    return lambda result: result.variant == name


FILTERS: dict[str, Callable[[Any], Check]] = {
    "paper": _match_paper,
    "dataset": _match_dataset,
    "method": _match_method,
    "metric": _match_metric,
    "backbone": _match_backbone,
    "dim": _match_dimension,
    "variant": _match_variant,
}

OUR_FIELDS = ("our_method", "our_options", "our_dataset", "our_metric", "doubtful")
RESULT_FIELDS = (*PublishedResult.__dataclass_fields__, *OUR_FIELDS)
