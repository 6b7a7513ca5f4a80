"""Validation during training: the mean over seeds, and the band between the lowest and the highest."""

from __future__ import annotations

from typing import Any

from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import line_styles
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import ComparisonTable

__all__ = ["curve_figure", "validation_points"]


def curve_figure(study: StudyRecord, table: ComparisonTable) -> Figure | None:
    """The primary metric on the validation classes against the training step; None if it was never logged."""
    column = table.columns[0]
    trained = [row.method for row in table.rows if row.kind == "trained"]
    curves = {method: points for method in trained if (points := validation_points(study, method))}
    if not curves:
        return None
    return Figure(
        "curves",
        lambda: draw_curves(curves, trained, column.scale, f"validation {column.heading}"),
        f"{column.metric} on the validation classes against the training step, one line per method.",
        f"{column.metric} on the validation classes. A line is the mean over seeds; its band reaches from the lowest "
        "to the highest seed. Choose a method in the legend to see it alone; shift adds others.",
    )


def validation_points(study: StudyRecord, method: str) -> dict[int, list[float]]:
    """Step → one value per finished run of a method that validated at all, for the steps all of those share."""
    logged = [run.validation(study.primary_metric) for run in study.runs_of(method, "done")]
    logged = [points for points in logged if points]
    if not logged:
        return {}
    shared = set.intersection(*(set(points) for points in logged))
    return {step: [points[step] for points in logged] for step in sorted(shared)}


def draw_curves(curves: dict[str, dict[int, list[float]]], methods: list[str], scale: float, title: str) -> Any:
    """Lines with bands; colour and dash tell the methods apart, and a legend that can be clicked."""
    alt = import_altair()
    values = [
        {
            "method": method,
            "step": step,
            "mean": scale * sum(at_step) / len(at_step),
            "low": scale * min(at_step),
            "high": scale * max(at_step),
        }
        for method, curve in curves.items()
        for step, at_step in curve.items()
    ]
    look = line_styles(methods)
    domain = list(curves)
    chosen = alt.selection_point(fields=["method"], bind="legend")
    x = alt.X("step:Q", title="training step", scale=alt.Scale(nice=False))
    y = alt.Scale(zero=False)
    legend = alt.Legend(columns=3, symbolType="stroke", symbolStrokeWidth=3)
    colour = alt.Color(
        "method:N",
        scale=alt.Scale(domain=domain, range=[look[name].colour for name in domain]),
        legend=legend,
    )
    dash = alt.StrokeDash(
        "method:N", scale=alt.Scale(domain=domain, range=[list(look[name].dash) for name in domain]), legend=legend
    )
    base = alt.Chart(alt.Data(values=values)).encode(x=x, color=colour)
    bands = base.mark_area().encode(
        y=alt.Y("low:Q", title=title, scale=y),
        y2="high:Q",
        opacity=alt.condition(chosen, alt.value(0.14), alt.value(0.02)),
    )
    lines = base.mark_line(strokeWidth=2).encode(
        y=alt.Y("mean:Q", title=title, scale=y),
        strokeDash=dash,
        opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.12)),
        tooltip=["method:N", alt.Tooltip("step:Q", title="step"), alt.Tooltip("mean:Q", title=title, format=".2f")],
    )
    return alt.layer(bands, lines).add_params(chosen).properties(width="container", height=320)
