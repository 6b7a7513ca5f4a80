"""One metric of every method: mean, interval, and each seed."""

from __future__ import annotations

from typing import Any

from equimetric.escaping import one_line
from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import PALETTE
from equimetric.studies.judgement import known_half_width
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import ComparisonTable

__all__ = ["interval_figure"]

ROW_HEIGHT = 26


def interval_figure(study: StudyRecord, table: ComparisonTable) -> Figure:
    """The primary metric of every row, in the order of the table; rows tied with the best in colour."""
    column = table.columns[0]
    return Figure(
        "intervals",
        lambda: draw_intervals(study, table),
        f"{column.metric} of every method with its interval; the numbers are in the table.",
        f"{column.metric} of each method: mean and interval as in the table, with each seed as a small dot. Red or "
        "orange: the best method, or those tied for it; blue: the others; hollow: baselines, which are not trained.",
    )


def draw_intervals(study: StudyRecord, table: ComparisonTable) -> Any:
    """Rules for intervals, dots for seeds, points for means."""
    alt = import_altair()
    column = table.columns[0]
    rows, seeds = [], []
    # Baselines last: the methods are what is compared.
    for row in sorted(table.rows, key=lambda row: row.kind == "baseline"):
        cell = row.cells[0]
        if cell is None:
            continue
        mean, half = cell.mean * column.scale, known_half_width(cell) * column.scale
        name = one_line(row.label)
        place = {"row": name, "kind": "best" if column.metric in row.emphasis else row.kind}
        rows.append(
            {
                **place,
                "mean": mean,
                "shown": f"{column.number(cell.mean)}{table.half_width(column, cell)}",
                **({"low": mean - half, "high": mean + half} if half > 0 else {}),
            }
        )
        if row.seeds > 1:
            seeds += [{**place, "seed": value * column.scale} for value in study.values(row.method, column.metric)]
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=["best", "trained", "baseline"], range=[PALETTE[1], PALETTE[0], "#808890"]),
        legend=None,
    )
    y = alt.Y("row:N", sort=[row["row"] for row in rows], title=None, axis=alt.Axis(ticks=False, domain=False))
    x, ticks = alt.Scale(zero=False, nice=True), alt.Axis(tickCount=10)
    heading = one_line(column.heading)
    base = alt.Chart(alt.Data(values=rows)).encode(y=y, color=colour)
    intervals = base.mark_rule(strokeWidth=2, strokeCap="round").encode(
        x=alt.X("low:Q", scale=x, title=heading, axis=ticks), x2="high:Q"
    )
    dots = (
        alt.Chart(alt.Data(values=seeds))
        .mark_circle(size=14, opacity=0.8, yOffset=8)
        .encode(y=y, color=colour, x=alt.X("seed:Q", scale=x, title=heading, axis=ticks))
    )
    means = base.mark_point(size=70, strokeWidth=2).encode(
        x=alt.X("mean:Q", scale=x, title=heading, axis=ticks),
        fill=alt.condition("datum.kind == 'baseline'", alt.value("transparent"), colour),
        shape=alt.condition("datum.kind == 'baseline'", alt.value("diamond"), alt.value("circle")),
        tooltip=[alt.Tooltip("row:N", title="method"), alt.Tooltip("shown:N", title=heading)],
    )
    # A layer without a number would have an axis without an extent.
    drawn = [intervals] if any("low" in row for row in rows) else []
    drawn += [dots] if seeds else []
    return alt.layer(*drawn, means).properties(width="container", height=ROW_HEIGHT * len(rows))
