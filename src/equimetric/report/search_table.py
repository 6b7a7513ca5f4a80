"""What a search tuned: the parameters of every row, how they scored, which mattered, and which lie at an edge."""

from __future__ import annotations

from functools import lru_cache

from equimetric.errors import EquimetricError
from equimetric.report.metric_cells import metric_column, metric_text
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow
from equimetric.studies.records import SearchRecord, StudyRecord
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
    metric = study.primary_metric
    rows = tuple(TableRow(search_cells(method, search, metric)) for method, search in study.searches.items())
    notes = [
        f"{method}: {sentence}."
        for method, search in study.searches.items()
        if search.choice
        for sentence in search.choice.at_edge.values()
    ]
    notes.append("Share of the variance of trials that each parameter explains (fANOVA).")
    return PlainTable(f"{study.title}: tuning", columns, rows, tuple(notes))


def search_cells(method: str, search: SearchRecord, metric: str) -> tuple[TableCell, ...]:
    """The cells of one method."""
    tuned = search.choice
    name = TableCell(method, {"method": method})
    if tuned is None:
        return (name, *(TableCell("–") for _ in range(4)))
    shares = importance(search)
    text = ", ".join(f"{key} = {format_number(value)}" for key, value in tuned.params.items())
    importances = ", ".join(f"{key} {100 * share:.0f} %" for key, share in shares.items())
    return (
        name,
        TableCell(text, {f"chosen {key}": value for key, value in tuned.params.items()}),
        TableCell(f"{tuned.trial} of {tuned.trials}", {"trial": tuned.trial, "trials": tuned.trials}),
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


def format_number(value: object) -> str:
    """Four digits of a real number, a true minus."""
    return f"{value:.4g}".replace("-", "−") if isinstance(value, float) else str(value)
