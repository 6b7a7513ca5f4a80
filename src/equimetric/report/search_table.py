"""What a search tuned: the parameters of every row, how they scored, which mattered, and which lie at an edge."""

from __future__ import annotations

from functools import lru_cache

from equimetric.dotted import format_setting
from equimetric.errors import EquimetricError
from equimetric.report.metric_cells import metric_column, metric_text
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow
from equimetric.studies.records import SearchRecord, StudyRecord
from equimetric.studies.search.edges import describe_edge
from equimetric.studies.search.results import parameter_importance

__all__ = ["search_table"]


def search_table(study: StudyRecord) -> PlainTable | None:
    """One row for each method that was tuned; None where none was."""
    if not study.searches:
        return None
    columns = (
        TableColumn("method", is_text=True),
        TableColumn("chosen", is_text=True),
        TableColumn("trial"),
        metric_column(study.primary_metric, f"validation {study.primary_metric}"),
        TableColumn("share of the variance", is_text=True),
    )
    rows = tuple(
        TableRow(search_cells(method, search, study.primary_metric)) for method, search in study.searches.items()
    )
    notes = ["Share of the variance of trials that each parameter explains (fANOVA)."]
    notes += [f"{edge}: {', '.join(methods)}; the best may lie beyond." for edge, methods in edge_groups(study).items()]
    return PlainTable(f"{study.title}: tuning", columns, rows, tuple(notes))


def edge_groups(study: StudyRecord) -> dict[str, list[str]]:
    """'optimizer.lr at the lower end 1e-05' → the methods for which that was chosen, with a value beside the end."""
    groups: dict[str, list[str]] = {}
    for method, search in study.searches.items():
        for name, value in search.choice.params.items() if search.choice else ():
            edge = describe_edge(search.space[name], value)
            if edge:
                shown = method if edge.startswith("at ") else f"{method} ({format_setting(value, 4)})"
                groups.setdefault(f"{name} {edge}", []).append(shown)
    return groups


def search_cells(method: str, search: SearchRecord, metric: str) -> tuple[TableCell, ...]:
    """The cells of one method."""
    tuned = search.choice
    name = TableCell(method, {"method": method})
    if tuned is None:
        return (name, *(TableCell("–") for _ in range(4)))
    shares = importance(search)
    text = ", ".join(f"{key} = {format_setting(value, 4)}" for key, value in tuned.params.items())
    importances = ", ".join(f"{key} {100 * share:.0f} %" for key, share in shares.items())
    return (
        name,
        TableCell(text, {f"chosen {key}": value for key, value in tuned.params.items()}),
        TableCell(f"{tuned.trial + 1} of {tuned.trials}", {"trial": tuned.trial + 1, "trials": tuned.trials}),
        TableCell(metric_text(metric, tuned.score), {"score": tuned.score}),
        TableCell(importances or "–", {f"importance {key}": share for key, share in shares.items()}),
    )


@lru_cache(maxsize=256)
def importance(search: SearchRecord) -> dict[str, float]:
    """Shares of the variance; empty where the package that computes them is not installed."""
    try:
        return parameter_importance(search.space, search.trials)
    except EquimetricError:
        return {}
