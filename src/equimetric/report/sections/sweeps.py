"""The metric against a condition that was swept: embedding size, batch size, distance of the test classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from equimetric.escaping import one_line
from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import line_styles
from equimetric.report.section import section
from equimetric.report.tables import plain_table
from equimetric.studies.judgement import known_half_width
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import Column, sweep_tables

__all__ = ["sweeps_section"]

AXIS_TITLES = {
    "dim": "embedding dimension",
    "batch": "images per batch",
    "batch size": "images per batch",
    "samples": "images per class in a batch",
    "steps": "training steps",
}
"""Name of a sweep's points → what its axis says; other names speak for themselves."""

POINT = re.compile(r"(?P<name>.+) (?P<value>-?\d+(\.\d+)?([eE][-+]?\d+)?)")
"""The name of a point that is one number: 'dim 64'."""

TEMPLATE = """
{% for figure in figures %}
{{ figure | chart }}
{% endfor %}
{% for table in tables %}
<details>
  <summary>{{ table.title }}</summary>
  {{ table | table }}
</details>
{% endfor %}
"""


@section("sweeps", title="Sweeps", link="Sweeps", order=74, template=TEMPLATE)
def sweeps_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """A figure for each condition that was swept over numbers, and the table of every point; None without sweeps."""
    tables = sweep_tables(study)
    if not tables:
        return None
    column = next(iter(tables.values())).columns[0]
    points: dict[str, list[dict[str, Any]]] = {}
    for point, table in tables.items():
        for name, value in point_values(study, point):
            for row in table.rows:
                cell = row.cells[0]
                if cell is not None:
                    half = known_half_width(cell)
                    ends = {"low": cell.mean - half, "high": cell.mean + half} if half > 0 else {}
                    found = {"mean": cell.mean, **ends}
                    shown = {key: round(column.scale * one, 4) for key, one in found.items()}
                    points.setdefault(name, []).append({"row": one_line(row.label), "value": value, **shown})
    figures = [
        sweep_figure(name, number, values, column)
        for number, (name, values) in enumerate(points.items())
        if len({value["value"] for value in values}) > 1
    ]
    return {"figures": figures, "tables": [plain_table(table) for table in tables.values()]}


def point_values(study: StudyRecord, point: str) -> list[tuple[str, float]]:
    """The condition of a point, where it is a number; its distance from the training classes where it has one."""
    if point in study.shifts:
        return [("Fréchet distance of test from training classes", study.shifts[point])]
    match = POINT.fullmatch(point)
    return [(match["name"], float(match["value"]))] if match else []


def sweep_figure(name: str, number: int, values: list[dict[str, Any]], column: Column) -> Figure:
    """The metric against one condition."""
    return Figure(
        f"sweep-{number}",
        lambda: draw_sweep(name, values, column),
        f"{column.metric} against {name}, one line per method.",
        f"{column.metric} of every method against {name}, with intervals as bands. Choose a method in the legend to "
        "see it alone.",
    )


def draw_sweep(name: str, values: list[dict[str, Any]], column: Column) -> Any:
    """Lines with bands; a logarithmic axis where values double."""
    alt = import_altair()
    rows = list(dict.fromkeys(value["row"] for value in values))
    look = line_styles(rows)
    numbers = sorted({value["value"] for value in values})
    grows = numbers[0] > 0 and numbers[-1] >= 8 * numbers[0]
    chosen = alt.selection_point(fields=["row"], bind="legend")
    x = alt.X(
        "value:Q",
        title=AXIS_TITLES.get(name, one_line(name)),
        scale=alt.Scale(type="log", base=2) if grows else alt.Scale(zero=False),
        axis=alt.Axis(values=numbers if len(numbers) <= 12 else None, format=",~r"),
    )
    legend = alt.Legend(columns=3, symbolType="stroke", symbolStrokeWidth=3)
    colour = alt.Color(
        "row:N",
        scale=alt.Scale(domain=rows, range=[look[row].colour for row in rows]),
        legend=legend,
    )
    dash = alt.StrokeDash(
        "row:N", scale=alt.Scale(domain=rows, range=[list(look[row].dash) for row in rows]), legend=legend
    )
    title, y = one_line(column.heading), alt.Scale(zero=False)
    base = alt.Chart(alt.Data(values=values)).encode(x=x, color=colour)
    # A row whose seeds and classes all score alike has no interval.
    bands = (
        base.transform_filter("isValid(datum.low)")
        .mark_area()
        .encode(
            y=alt.Y("low:Q", title=title, scale=y),
            y2="high:Q",
            opacity=alt.condition(chosen, alt.value(0.14), alt.value(0.02)),
        )
    )
    lines = base.mark_line(strokeWidth=2, point=True).encode(
        y=alt.Y("mean:Q", title=title, scale=y),
        strokeDash=dash,
        opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.12)),
        tooltip=["row:N", "value:Q", alt.Tooltip("mean:Q", title=title)],
    )
    return alt.layer(bands, lines).add_params(chosen).properties(width="container", height=300)
