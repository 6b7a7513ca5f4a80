"""Validation during training: the mean over seeds, and the band between the lowest and the highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import line_styles
from equimetric.studies.judgement import higher_is_better
from equimetric.studies.records import RunRecord, StudyRecord
from equimetric.studies.table import ComparisonTable

__all__ = ["curve_figure", "selected_step", "validation_points"]

MANY = 9
"""Methods from which on bands are drawn of those alone that are chosen, and the legend has more columns."""


def curve_figure(study: StudyRecord, table: ComparisonTable) -> Figure | None:
    """The primary metric on the validation classes against the training step; None if it was never logged."""
    column = table.columns[0]
    trained = [row.method for row in table.rows if row.kind == "trained"]
    curves = {method: points for method in trained if (points := validation_points(study, method))}
    if not curves:
        return None
    chosen = {method: selected_steps(study, method, list(curve)) for method, curve in curves.items()}
    choice = " Choose a method in the legend to see it alone; shift adds others." if len(curves) > 1 else ""
    return Figure(
        "curves",
        lambda: draw_curves(curves, chosen, trained, column.scale, f"validation {column.heading}"),
        f"{column.metric} on the validation classes against the training step, one line per method.",
        f"{column.metric} on the validation classes. {describe_lines(curves)} Dots: the steps whose weights were "
        f"selected.{choice}",
    )


def describe_lines(curves: Mapping[str, Mapping[int, Sequence[float]]]) -> str:
    """What a line and its band are; a method with one run has no band."""
    runs = [max(map(len, curve.values())) for curve in curves.values()]
    if max(runs) == 1:
        return "A line is one run."
    whose = "of methods of several runs " if min(runs) == 1 else ""
    where = ", where the method is chosen" if len(curves) > MANY else ""
    return f"A line is the mean over seeds; its band {whose}reaches from the lowest to the highest seed{where}."


def selected_step(run: RunRecord, metric: str) -> int | None:
    """The first step with the best validation score of a run, None where none was logged."""
    curve = run.validation(metric)
    sign = 1 if higher_is_better(metric) else -1
    return max(curve, key=lambda step: (sign * curve[step], -step), default=None)


def selected_steps(study: StudyRecord, method: str, drawn: Sequence[int]) -> list[int]:
    """The selected step of each finished run of a method, of those that are drawn."""
    found = (selected_step(run, study.primary_metric) for run in study.runs_of(method, "done"))
    return [step for step in found if step is not None and step in drawn]


def validation_points(study: StudyRecord, method: str) -> dict[int, list[float]]:
    """Step → one value per finished run of a method that validated at all, for the steps all of those share."""
    logged = [run.validation(study.primary_metric) for run in study.runs_of(method, "done")]
    logged = [points for points in logged if points]
    if not logged:
        return {}
    shared = set.intersection(*(set(points) for points in logged))
    return {step: [points[step] for points in logged] for step in sorted(shared)}


def draw_curves(
    curves: dict[str, dict[int, list[float]]],
    selected: Mapping[str, Sequence[int]],
    methods: list[str],
    scale: float,
    title: str,
) -> Any:
    """Lines with bands and selected steps; colour and dash tell the methods apart, and a legend that can be clicked."""
    alt = import_altair()
    values = [
        {
            "method": method,
            "step": step,
            "mean": scale * sum(at_step) / len(at_step),
            "low": scale * min(at_step),
            "high": scale * max(at_step),
            "selected": selected[method].count(step),
        }
        for method, curve in curves.items()
        for step, at_step in curve.items()
    ]
    look = line_styles(methods)
    domain = list(curves)
    chosen = alt.selection_point(fields=["method"], bind="legend")
    x = alt.X("step:Q", title="training step", scale=alt.Scale(nice=False))
    y = alt.Scale(zero=False)
    many = len(domain) > MANY
    legend = alt.Legend(columns=5 if many else 3, symbolType="stroke", symbolStrokeWidth=3, symbolSize=300)
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
        opacity=alt.condition(
            alt.ParameterPredicate(param=chosen.name, empty=not many), alt.value(0.14), alt.value(0.0 if many else 0.02)
        ),
    )
    lines = base.mark_line(strokeWidth=2).encode(
        y=alt.Y("mean:Q", title=title, scale=y),
        strokeDash=dash,
        opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.12)),
        tooltip=["method:N", alt.Tooltip("step:Q", title="step"), alt.Tooltip("mean:Q", title=title, format=".2f")],
    )
    dots = (
        base.transform_filter("datum.selected > 0")
        .mark_point(filled=True, size=60)
        .encode(
            y=alt.Y("mean:Q", title=title, scale=y),
            opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.12)),
            tooltip=["method:N", alt.Tooltip("step:Q"), alt.Tooltip("selected:Q", title="runs that selected it")],
        )
    )
    return alt.layer(bands, lines, dots).add_params(chosen).properties(width="container", height=320)
