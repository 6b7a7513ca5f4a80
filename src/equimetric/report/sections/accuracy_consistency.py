"""Accuracy against consistency: recall@1 and OPIS of every method, and the methods that no other beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from equimetric.escaping import one_line
from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import PALETTE
from equimetric.report.section import section
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["accuracy_consistency_section", "pareto_front"]

ACCURACY = ("recall@1", "precision@1")

TEMPLATE = """
<p class="lead">Retrieving the right class and treating classes alike are two things.
No method beats those on the front in both: {% for name in front %}<span class="name">{{ name | breakable }}</span>{{ ", " if not loop.last }}{% endfor %}.</p>
{{ figure | chart }}
{% if beside %}<p>Baselines, which are not drawn: {% for point in beside %}<span class="name">{{ point.method | breakable }}</span> \
{{ "%.1f" | format(point.accuracy) }} %, OPIS {{ "%.2f" | format(point.opis) }} × 10⁻³{{ "; " if not loop.last }}{% endfor %}.</p>{% endif %}
"""  # noqa: E501


@section("accuracy_consistency", title="Accuracy against consistency", link="Consistency", order=33, template=TEMPLATE)
def accuracy_consistency_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """The figure, and the methods of the front; None where fewer than two methods have both scores."""
    found = [point for row in comparison_table(study).rows if (point := measure(study, row.method, row.kind))]
    if len(found) < 2:
        return None
    front = pareto_front([(point["accuracy"], point["opis"]) for point in found])
    for place, point in enumerate(found):
        point["front"] = place in front
    # Baselines lie so far away that the methods would stand on top of each other.
    trained = [point for point in found if point["kind"] != "baseline"]
    drawn, beside = (trained, [point for point in found if point not in trained]) if len(trained) > 1 else (found, [])
    figure = Figure(
        "accuracy-consistency",
        lambda: draw_points(drawn),
        "Recall at 1 against OPIS of every method; the methods that no other beats in both are joined by a line.",
        "Recall@1, to the right is better, against OPIS, lower is better. Bars reach over the seeds. Filled: methods "
        "that no other beats in both; the line is the front that they make. Hollow: the others.",
    )
    return {"figure": figure, "front": [found[place]["method"] for place in front], "beside": beside}


def measure(study: StudyRecord, method: str, kind: str) -> dict[str, Any] | None:
    """Mean and range of both scores of a method; OPIS of its stored thresholds where the study did not measure it."""
    metric = next((name for name in ACCURACY if study.values(method, name)), None)
    if metric is None:
        return None
    profile = study.profiles.get(method)
    accuracy, opis = study.values(method, metric), study.values(method, "opis")
    if not opis and profile is not None and profile.run.thresholds is not None:
        opis = (profile.run.thresholds.consistency.opis,)
    if not opis:
        return None
    shown = {"accuracy": [100 * value for value in accuracy], "opis": [1e3 * value for value in opis]}
    point: dict[str, Any] = {"method": one_line(method), "kind": kind}
    for name, values in shown.items():
        point |= {name: sum(values) / len(values), f"{name}_low": min(values), f"{name}_high": max(values)}
    return point


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The points (larger is better, smaller is better) that no other point beats in one and equals in the other."""

    def beaten(place: int) -> bool:
        accuracy, opis = points[place]
        return any(other[0] >= accuracy and other[1] <= opis and other != points[place] for other in points)

    return sorted((place for place in range(len(points)) if not beaten(place)), key=lambda place: points[place])


def draw_points(points: Sequence[Mapping[str, Any]]) -> Any:
    """Points with ranges and names, and the line of the front."""
    alt = import_altair()
    x = alt.X("accuracy:Q", title="recall@1 (%)", scale=alt.Scale(zero=False, nice=True, padding=24))
    y = alt.Y("opis:Q", title="OPIS (×10⁻³)", scale=alt.Scale(zero=False, nice=True, padding=16))
    base = alt.Chart(alt.Data(values=list(points)))
    across = base.mark_rule(opacity=0.5).encode(
        x=alt.X("accuracy_low:Q", title="recall@1 (%)"), x2="accuracy_high:Q", y=y
    )
    along = base.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("opis_low:Q", title="OPIS (×10⁻³)"), y2="opis_high:Q")
    front = (
        base.transform_filter("datum.front")
        .mark_line(color=PALETTE[1], strokeDash=[5, 3], interpolate="step-after")
        .encode(x=x, y=y, order="accuracy:Q")
    )
    dots = base.mark_point(size=80, strokeWidth=2, color=PALETTE[0]).encode(
        x=x,
        y=y,
        fill=alt.condition("datum.front", alt.value(PALETTE[0]), alt.value("transparent")),
        shape=alt.condition("datum.kind == 'baseline'", alt.value("diamond"), alt.value("circle")),
        tooltip=[
            alt.Tooltip("method:N"),
            alt.Tooltip("accuracy:Q", title="recall@1 (%)", format=".2f"),
            alt.Tooltip("opis:Q", title="OPIS (×10⁻³)", format=".2f"),
        ],
    )
    names = base.mark_text(align="left", dx=8, dy=-8, fontSize=11).encode(x=x, y=y, text="method:N")
    return alt.layer(front, across, along, dots, names).properties(width="container", height=320)
