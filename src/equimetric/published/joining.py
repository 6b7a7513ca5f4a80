"""Our numbers beside published ones, where method, data set and metric are the same."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Unpack

from equimetric.errors import EquimetricError
from equimetric.published.names import find_dataset, find_metric, metric_scale
from equimetric.published.records import PublishedResult, ResultFilters, select_results

__all__ = ["join_results"]


def join_results(
    rows: Iterable[Mapping[str, Any]], *, doubtful: bool = False, **filters: Unpack[ResultFilters]
) -> list[dict[str, Any]]:
    """Every row with each published result of the same method, data set and metric; a row without any, once.

    A row has `method` (our name), `options` (ours, may be missing), `dataset` and `metric` (any spelling), and whatever
    else it holds, such as `value`. Added are `published`, in the unit of `evaluate` (a fraction where papers print
    percent), `published_half_width`, and the result's conditions: paper, table, backbone, dim, variant, method as
    printed (`published_method`), quoted, note, doubt. The filters are those of `select_results`.

    Methods are the same if they have the same loss, geometry, references, selection and options; options with a search
    range may differ, unless the published row fixes them, because both sides tune them. The number of a doubtful result
    is None, with the reason in `doubt`, unless `doubtful` asks for it. Conditions are not compared: a value beside ours
    says what was published, not that it was measured alike.
    """
    candidates = [result for result in select_results(**filters) if result.our_method is not None]
    joined = []
    for row in rows:
        matches = [result for result in candidates if _same_setting(row, result) and _same_method(row, result)]
        joined += [{**row, **_describe_match(result, doubtful)} for result in matches] or [{**row, **NO_MATCH}]
    return joined


def _describe_match(result: PublishedResult, doubtful: bool) -> dict[str, Any]:
    scale = metric_scale(result.our_metric or "")
    value, half_width = (None, None) if result.doubtful and not doubtful else (result.value, result.half_width)
    return {
        # Rounded to what is printed: 68.13 / 100 is not the float 0.6813.
        "published": None if value is None else round(value / scale, 10),
        "published_half_width": None if half_width is None else round(half_width / scale, 10),
        "published_method": result.method,
        **{field: getattr(result, field) for field in CONDITIONS},
    }


CONDITIONS = ("paper", "table", "backbone", "dim", "variant", "quoted", "note", "doubt")
NO_MATCH = dict.fromkeys(("published", "published_half_width", "published_method", *CONDITIONS))


def _same_setting(row: Mapping[str, Any], result: PublishedResult) -> bool:
    """Whether a row and a result are of one data set and metric; a data set that no paper has matches nothing."""
    for field in ("method", "dataset", "metric"):
        if not isinstance(row.get(field), str):
            raise EquimetricError(f"a row to join needs {field!r}, a name; got {dict(row)}")
    metric = find_metric(row["metric"])
    return metric is not None and metric == result.our_metric and _dataset_or_none(row["dataset"]) == result.dataset


@cache
def _dataset_or_none(name: str) -> str | None:
    try:
        return find_dataset(name)
    except EquimetricError:
        return None


def _same_method(row: Mapping[str, Any], result: PublishedResult) -> bool:
    from equimetric.objectives.equivalence import same_method

    assert result.our_method is not None
    return same_method(row["method"], row.get("options") or {}, result.our_method, result.our_options or {})
