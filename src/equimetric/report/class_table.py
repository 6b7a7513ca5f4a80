"""Two methods class by class as a table for papers: the two that the page compares first."""

from __future__ import annotations

import numpy as np

from equimetric.report.metric_cells import metric_column, metric_text, value_cell
from equimetric.report.sections.compare import default_pair
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow, text_cell
from equimetric.studies.judgement import judge_study
from equimetric.studies.records import StudyRecord

__all__ = ["class_table"]

ENDS = 10
"""Classes at either end that readers are shown."""


def class_table(study: StudyRecord) -> PlainTable | None:
    """The score of every test class under both methods, by falling difference; None where no two are compared."""
    judgement = judge_study(study)
    pair = default_pair(judgement)
    if pair is None:
        return None
    first, second = pair
    means = [judgement.scores[row].values.mean(axis=0) for row in pair]
    listed = next(run.classes for run in study.runs if run.method == first and run.classes is not None)
    metric, differences = study.primary_metric, means[0] - means[1]
    rows = []
    for place in np.argsort(-differences, kind="stable").tolist():
        difference = float(differences[place])
        sign = "+" if difference > 0 else ""
        rows.append(
            TableRow(
                (
                    text_cell("class", listed.names[place]),
                    TableCell(f"{listed.queries[place]:,}", {"queries": listed.queries[place]}),
                    value_cell(first, metric, float(means[0][place])),
                    value_cell(second, metric, float(means[1][place])),
                    TableCell(sign + metric_text(metric, difference), {"difference": difference}),
                )
            )
        )
    columns = (
        TableColumn("class", is_text=True),
        TableColumn("queries"),
        *(metric_column(metric, name) for name in (first, second, "difference")),
    )
    note = f"{metric} of every test class, means over seeds, by falling difference of {first} and {second}."
    return PlainTable(f"{study.title}: {first} and {second} by class", columns, tuple(rows), (note,), ENDS)
