"""Validation during training, which weights were kept, what it cost, and what runs noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from equimetric.report.curve_figure import curve_figure, selected_step
from equimetric.report.memory_cells import MEMORY_NOTE, known_memory, memory_cells, memory_columns
from equimetric.report.section import section
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow, number_cell, text_cell
from equimetric.studies.records import RunRecord, StudyRecord
from equimetric.studies.table import comparison_table, format_duration

__all__ = ["training_section"]

VALIDATION_COLUMNS = (TableColumn("selected at step"), TableColumn("last validation", "step"))
SELECTED_NOTE = (
    "Weights are those of the validation with the best score; a selection at the last step says that training was "
    "still improving."
)

TEMPLATE = """
{% if figure %}
{{ figure | chart }}
{% else %}
<p class="empty">No validation was logged during training.</p>
{% endif %}
{% if table.rows %}
<details{% if not figure %} open{% endif %}>
  <summary>Steps, time, memory and size{% if not single %} of every method{% endif %}</summary>
  {{ table | table }}
</details>
{% endif %}
{% if study.grouped_notes %}
<ul class="notes">
  {% for where, note in study.grouped_notes %}
  <li><span class="warning">{{ where | breakable }}</span>: {{ note }}</li>
  {% endfor %}
</ul>
{% endif %}
"""


@section("training", title="Training", link="Training", order=80, template=TEMPLATE)
def training_section(study: StudyRecord) -> Mapping[str, Any]:
    """The curves, None where nothing was logged; a row for each trained method."""
    return {"figure": curve_figure(study, comparison_table(study)), "table": training_table(study)}


def training_table(study: StudyRecord) -> PlainTable:
    """Where weights were selected, the time and the parameters; means over the finished runs of a method.

    Columns of validation are left out where no run logged any.
    """
    kinds = known_memory(run for run in study.runs if run.status == "done")
    done = {row: [run for run in study.runs_of(row, "done") if run.kind == "trained"] for row in study.methods}
    done = {row: runs for row, runs in done.items() if runs}
    validated = any(run.validation(study.primary_metric) for runs in done.values() for run in runs)
    columns = (
        TableColumn("method", is_text=True),
        *(VALIDATION_COLUMNS if validated else ()),
        TableColumn("time per run"),
        TableColumn("time of all runs"),
        *memory_columns(kinds),
        TableColumn("parameters"),
        TableColumn("embedding dimension"),
    )
    rows = tuple(
        TableRow(
            (
                text_cell("method", row),
                *(validation_cells(runs, study.primary_metric) if validated else ()),
                *cost_cells(runs, kinds),
            )
        )
        for row, runs in done.items()
    )
    memory = MEMORY_NOTE if kinds else "These runs are of a version that did not measure memory."
    notes = (*([SELECTED_NOTE] if validated else []), memory)
    return PlainTable(f"{study.title}: training", columns, rows, notes)


def validation_cells(runs: Sequence[RunRecord], metric: str) -> tuple[TableCell, TableCell]:
    """The steps of the selected weights and of the last validation of one method."""
    curves = [curve for run in runs if (curve := run.validation(metric))]
    best = [step for run in runs if (step := selected_step(run, metric)) is not None]
    last = max((max(curve) for curve in curves), default=None)
    span = "–" if not best else f"{min(best):,}" if min(best) == max(best) else f"{min(best):,} to {max(best):,}"
    return (
        TableCell(span, {"selected_first": min(best, default=None), "selected_last": max(best, default=None)}),
        number_cell("last_step", last),
    )


def cost_cells(runs: Sequence[RunRecord], kinds: Sequence[str]) -> tuple[TableCell, ...]:
    """The time, memory and size of one method."""
    seconds = [run.seconds for run in runs]
    mean = sum(seconds) / len(seconds)
    return (
        TableCell(format_duration(mean), {"seconds": mean}),
        TableCell(format_duration(sum(seconds)), {"total_seconds": sum(seconds)}),
        *memory_cells(runs, kinds),
        TableCell(f"{runs[0].parameters:,}", {"parameters": runs[0].parameters}),
        number_cell("dim", runs[0].cost.get("dim")),
    )
