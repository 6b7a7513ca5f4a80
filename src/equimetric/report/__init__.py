"""The report of a study: tables, figures, and one HTML page made of sections; and the literature's numbers beside it.

All of it is a pure function of plain data, such as a `StudyRecord`; nothing here reads a run from disk or computes a
metric. Nothing is imported before its first use: tables of plain data need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equimetric.report.critical_difference import critical_difference_diagram
    from equimetric.report.figure import Figure, render_figure, write_figures
    from equimetric.report.literature import (
        hyperparameter_records,
        hyperparameter_table,
        overview_table,
        printed_tables,
        result_records,
    )
    from equimetric.report.page import record_tables, render_html, study_tables, write_report, write_tables
    from equimetric.report.papers_versus_reality import (
        accuracy_table,
        draw_improvements,
        improvement_records,
        improvement_table,
        trend_table,
    )
    from equimetric.report.section import figures_of
    from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow
    from equimetric.report.tables import plain_table, print_table, to_csv, to_frame, to_json, to_latex, to_markdown
    from equimetric.studies.embeddings_record import EmbeddingsRecord
    from equimetric.studies.records import GalleryRow, RunRecord, StudyRecord
    from equimetric.studies.table import ComparisonTable, comparison_table

__all__ = [
    "ComparisonTable",
    "EmbeddingsRecord",
    "Figure",
    "GalleryRow",
    "PlainTable",
    "RunRecord",
    "StudyRecord",
    "TableCell",
    "TableColumn",
    "TableRow",
    "accuracy_table",
    "comparison_table",
    "critical_difference_diagram",
    "draw_improvements",
    "figures_of",
    "hyperparameter_records",
    "hyperparameter_table",
    "improvement_records",
    "improvement_table",
    "overview_table",
    "plain_table",
    "print_table",
    "printed_tables",
    "record_tables",
    "render_figure",
    "render_html",
    "result_records",
    "study_tables",
    "to_csv",
    "to_frame",
    "to_json",
    "to_latex",
    "to_markdown",
    "trend_table",
    "write_figures",
    "write_report",
    "write_tables",
]

_MODULES = {
    **dict.fromkeys(("GalleryRow", "RunRecord", "StudyRecord"), "studies.records"),
    **dict.fromkeys(("ComparisonTable", "comparison_table"), "studies.table"),
    "EmbeddingsRecord": "studies.embeddings_record",
    **dict.fromkeys(("Figure", "render_figure", "write_figures"), "report.figure"),
    "critical_difference_diagram": "report.critical_difference",
    "figures_of": "report.section",
    **dict.fromkeys(("hyperparameter_records", "hyperparameter_table", "overview_table"), "report.literature"),
    **dict.fromkeys(("printed_tables", "result_records"), "report.literature"),
    **dict.fromkeys(("record_tables", "render_html", "study_tables"), "report.page"),
    **dict.fromkeys(("write_report", "write_tables"), "report.page"),
    **dict.fromkeys(("accuracy_table", "draw_improvements"), "report.papers_versus_reality"),
    "improvement_records": "report.papers_versus_reality",
    **dict.fromkeys(("improvement_table", "trend_table"), "report.papers_versus_reality"),
    **dict.fromkeys(("PlainTable", "TableCell", "TableColumn", "TableRow"), "report.table_data"),
    **dict.fromkeys(("plain_table", "print_table", "to_csv", "to_frame", "to_json"), "report.tables"),
    **dict.fromkeys(("to_latex", "to_markdown"), "report.tables"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'equimetric.report' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"equimetric.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
