"""The report of a study: tables, figures, and one HTML page made of sections.

All of it is a pure function of a `StudyRecord`; nothing here reads a run from disk or computes a metric.
"""

from equimetric.report.figures import critical_difference_diagram, interval_plot, validation_curves
from equimetric.report.page import render_html, write_report
from equimetric.report.tables import print_table, to_csv, to_latex, to_markdown
from equimetric.studies.records import GalleryRow, RunRecord, StudyRecord
from equimetric.studies.table import ComparisonTable, comparison_table

__all__ = [
    "ComparisonTable",
    "GalleryRow",
    "RunRecord",
    "StudyRecord",
    "comparison_table",
    "critical_difference_diagram",
    "interval_plot",
    "print_table",
    "render_html",
    "to_csv",
    "to_latex",
    "to_markdown",
    "validation_curves",
    "write_report",
]
