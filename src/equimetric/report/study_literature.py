"""A study beside the literature: published numbers of the same methods, and improvements over the old baselines."""

from __future__ import annotations

from typing import Any

from equimetric.published import (
    BASES,
    join_results,
    paper_accuracies,
    paper_improvements,
    publication_year,
    table_accuracies,
    table_improvements,
)
from equimetric.published.improvement import Accuracy, Improvement
from equimetric.report.metric_cells import metric_column, value_cell
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow, text_cell
from equimetric.studies.records import StudyRecord

__all__ = ["published_matches", "published_table", "study_accuracies", "study_improvements"]


def published_matches(study: StudyRecord) -> list[dict[str, Any]]:
    """Our means beside every published value of the same method, data set and metric."""
    rows = [
        {
            "row": row,
            "method": method,
            "options": dict(options),
            "dataset": study.dataset,
            "metric": metric,
            "value": value,
        }
        for row, (method, options) in study.recipes.items()
        for metric in study.table_metrics
        if (value := mean_of(study, row, metric)) is not None
    ]
    return [match for match in join_results(rows) if match["published"] is not None or match["doubt"]]


def published_table(study: StudyRecord) -> PlainTable | None:
    """The matches as a table; None where there is none."""
    matches = published_matches(study)
    if not matches:
        return None
    columns = (
        *(TableColumn(name, is_text=True) for name in ("row", "metric")),
        TableColumn("ours"),
        TableColumn("published"),
        *(TableColumn(name, is_text=True) for name in ("paper", "backbone", "dim", "note")),
    )
    note = "Published values were measured under the conditions of their papers, not under those of this study."
    return PlainTable(f"{study.title}: beside the literature", columns, tuple(map(match_row, matches)), (note,))


def match_row(match: dict[str, Any]) -> TableRow:
    """One published value beside ours."""
    note = match["doubt"] or match["note"] or ""
    return TableRow(
        (
            text_cell("row", match["row"]),
            TableCell(metric_column(match["metric"]).heading, {"metric": match["metric"]}),
            value_cell("ours", match["metric"], match["value"]),
            value_cell("published", match["metric"], match["published"], match["published_half_width"]),
            text_cell("paper", match["paper"]),
            text_cell("backbone", match["backbone"]),
            TableCell("" if match["dim"] is None else str(match["dim"]), {"dim": match["dim"]}),
            text_cell("note", note),
        )
    )


def study_improvements(study: StudyRecord) -> list[Improvement]:
    """Papers versus reality: what papers report over contrastive and triplet losses, and what this study measures.

    Empty where the study has neither of the two rows, or nothing to compare with them. Years are those in which methods
    were published.
    """
    rows = dated_rows(study, study.primary_metric)
    improvements: list[Improvement] = []
    for base in BASES:
        source = f"this study ({study.primary_metric})"
        own = table_improvements(rows, base, source=source) if any(row["method"] == base for row in rows) else []
        improvements += [*paper_improvements(base), *own] if own else []
    return improvements


def study_accuracies(study: StudyRecord) -> list[Accuracy]:
    """Papers versus reality over the years: the P@1 that papers report and that of this study, both in percent.

    Empty where the study has no improvements, or did not measure Recall@1, which is P@1.
    """
    rows = [{**row, "value": 100 * row["value"]} for row in dated_rows(study, "recall@1")]
    if not rows or not study_improvements(study):
        return []
    return [*paper_accuracies(), *table_accuracies(rows, source="this study (recall@1)")]


def dated_rows(study: StudyRecord, metric: str) -> list[dict[str, Any]]:
    """The means of trained rows, with the years in which their methods were published."""
    return [
        {
            # The two bases are known by their method, whatever their rows are called.
            "method": method if method in BASES else row,
            "dataset": study.dataset or study.name,
            "value": value,
            "year": publication_year(method),
        }
        for row, (method, _) in study.recipes.items()
        if (value := mean_of(study, row, metric)) is not None
    ]


def mean_of(study: StudyRecord, row: str, metric: str) -> float | None:
    """The mean of a row over seeds; None where it has none."""
    values = study.values(row, metric)
    return sum(values) / len(values) if values else None
