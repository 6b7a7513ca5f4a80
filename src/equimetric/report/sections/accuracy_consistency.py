"""Accuracy against consistency: recall@1 and OPIS of every method, and the methods that no other beats in both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equimetric.escaping import one_line
from equimetric.report.figure import Figure, import_altair
from equimetric.report.label_placement import LabelOffset, place_labels
from equimetric.report.palette import PALETTE
from equimetric.report.section import section
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["accuracy_consistency_section", "pareto_front"]

ACCURACY_METRICS = ("recall@1", "precision@1")

PAPER_WIDTH, HEIGHT = 800, 340
"""Pixels of the plane in papers, and its height everywhere."""


@dataclass(frozen=True)
class WidthRange:
    """Widths of the plane for which labels are placed, and whether these are numbers, as names find no room."""

    narrowest: int
    widest: int
    numbered: bool = False

    @property
    def opacity(self) -> str:
        """1 where a page or a paper gives the plane such a width, else 0: an expression of Vega."""
        return f"width >= {self.narrowest} && width < {self.widest} ? 1 : 0"


WIDTHS = (WidthRange(200, 560, numbered=True), WidthRange(560, 720), WidthRange(720, 960))
"""From a phone to the widest figure of a page; `consistency.css` shows what the numbers mean below the last of them."""
LOGARITHMIC = 5.0
"""Ratio of the largest OPIS to the smallest from which the axis is logarithmic: a few methods that treat classes very
unequally would press all others onto one line."""

TEMPLATE = """
<p class="lead">Retrieving the right class and treating classes alike are two things.
No {{ "trained " if beside }}method beats those on the front in both: {% for name in front %}<span class="name">{{ name | breakable }}</span>{{ ", " if not loop.last }}{% endfor %}.</p>
{{ figure | chart }}
<ol class="point-names" aria-label="Methods by the numbers of the figure">{% for name in names %}<li class="name">{{ name | breakable }}</li>{% endfor %}</ol>
{% if beside %}<p>Baselines, which are not drawn: {% for point in beside %}<span class="name">{{ point.method | breakable }}</span> \
{{ "%.1f" | format(point.accuracy) }} %, OPIS {{ "%.2f" | format(point.opis) }} × 10⁻³\
{{ " (no method beats it in both)" if point.unbeaten }}{{ "; " if not loop.last }}{% endfor %}.</p>{% endif %}
"""  # noqa: E501


@section("accuracy_consistency", title="Accuracy against consistency", link="Consistency", order=33, template=TEMPLATE)
def accuracy_consistency_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """The figure, and the methods of the front; None where fewer than two methods have both scores."""
    points = [point for row in comparison_table(study).rows if (point := measure(study, row.method, row.kind))]
    if len(points) < 2:
        return None
    drawn, beside = find_front(points)
    measured = all(study.values(point["method"], "opis") for point in drawn)
    figure = Figure(
        "accuracy-consistency",
        lambda: draw_points(drawn),
        "Recall at 1 against OPIS of every method; the methods that no other beats in both are joined by a line.",
        "Recall@1, to the right is better, against OPIS, lower is better. Bars reach over the seeds. Filled: methods "
        "that no other beats in both; the line is the front that they make. Hollow: the others."
        + (" Names that have no room are left out: point at the circle." if leaves_out(drawn) else "")
        + ("" if measured else " OPIS is that of the first seed."),
        paper_width=PAPER_WIDTH,
    )
    front = [point["method"] for point in drawn if point["front"]]
    return {"figure": figure, "front": front, "beside": beside, "names": [point["method"] for point in drawn]}


def measure(study: StudyRecord, method: str, kind: str) -> dict[str, Any] | None:
    """Mean and range of both scores of a method; OPIS of its stored thresholds where the study did not measure it."""
    metric = next((name for name in ACCURACY_METRICS if study.values(method, name)), None)
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


def find_front(points: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The points to draw, with their front, and baselines beside them, with whether any of those beats them in both.

    Baselines lie so far away that the methods would stand on top of each other.
    """
    trained = [point for point in points if point["kind"] != "baseline"]
    drawn = trained if len(trained) > 1 else list(points)
    beside = [point for point in points if point not in drawn]
    front = pareto_front(scores(drawn))
    for place, point in enumerate(drawn):
        point["front"] = place in front
    for point in beside:
        point["unbeaten"] = len(drawn) in pareto_front(scores([*drawn, point]))
    return drawn, beside


def scores(points: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Accuracy and OPIS of every point."""
    return [(point["accuracy"], point["opis"]) for point in points]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The points (larger is better, smaller is better) that no other point beats in one and equals in the other."""

    def beaten(place: int) -> bool:
        accuracy, opis = points[place]
        return any(other[0] >= accuracy and other[1] <= opis and other != points[place] for other in points)

    return sorted((place for place in range(len(points)) if not beaten(place)), key=lambda place: points[place])


def is_logarithmic(points: Sequence[Mapping[str, Any]]) -> bool:
    """Whether OPIS is drawn on a logarithmic axis."""
    low, high = min(point["opis_low"] for point in points), max(point["opis_high"] for point in points)
    return bool(low > 0 and high > LOGARITHMIC * low)


def domain(points: Sequence[Mapping[str, Any]], name: str, logarithmic: bool = False) -> tuple[float, float]:
    """The ends of an axis: those of all ranges, and a little more."""
    low, high = min(point[f"{name}_low"] for point in points), max(point[f"{name}_high"] for point in points)
    if logarithmic:
        factor = (high / low) ** 0.09
        return low / factor, high * factor
    margin = 0.09 * (high - low) or 0.5
    return low - margin, high + margin


def group_labels(points: Sequence[Mapping[str, Any]], widths: WidthRange) -> dict[LabelOffset, list[Mapping[str, Any]]]:
    """The points whose labels find a place in planes of some widths, by that place; those of the front first.

    Every number finds one, or stands as far away as it takes; of names those of the front.
    """
    numbered = [{**point, "number": str(number)} for number, point in enumerate(points, start=1)]
    order = sorted(numbered, key=lambda point: not point["front"])
    logarithmic = is_logarithmic(points)
    transform = math.log if logarithmic else float
    left, right = domain(points, "accuracy")
    low, high = map(transform, domain(points, "opis", logarithmic))
    pixels = [
        (
            widths.narrowest * (point["accuracy"] - left) / (right - left),
            HEIGHT * (high - transform(point["opis"])) / (high - low),
            point["number" if widths.numbered else "method"],
        )
        for point in order
    ]
    needed = len(points) if widths.numbered else sum(point["front"] for point in points)
    places = place_labels(pixels, widths.narrowest, HEIGHT, needed, widths.widest)
    groups: dict[LabelOffset, list[Mapping[str, Any]]] = {}
    for point, place in zip(order, places, strict=True):
        if place is not None:
            groups.setdefault(place, []).append(point)
    return groups


def leaves_out(points: Sequence[Mapping[str, Any]]) -> bool:
    """Whether some width has no room for the label of some point."""
    return any(sum(map(len, group_labels(points, widths).values())) < len(points) for widths in WIDTHS)


def draw_points(points: Sequence[Mapping[str, Any]]) -> Any:
    """Points with ranges and names, and the line of the front."""
    alt = import_altair()
    logarithmic = is_logarithmic(points)
    opis_title = "OPIS (×10⁻³, logarithmic)" if logarithmic else "OPIS (×10⁻³)"
    opis_scale = alt.Scale(
        type="log" if logarithmic else "linear", domain=domain(points, "opis", logarithmic), nice=False
    )
    x = alt.X(
        "accuracy:Q",
        title="recall@1 (%)",
        axis=alt.Axis(tickCount=8),
        scale=alt.Scale(domain=domain(points, "accuracy"), nice=False),
    )
    y = alt.Y("opis:Q", title=opis_title, axis=alt.Axis(tickCount=6, format=".4~g"), scale=opis_scale)
    base = alt.Chart(alt.Data(values=list(points)))
    across = base.mark_rule(opacity=0.5).encode(
        x=alt.X("accuracy_low:Q", title="recall@1 (%)"), x2="accuracy_high:Q", y=y
    )
    along = base.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("opis_low:Q", title=opis_title), y2="opis_high:Q")
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
    lines, words = [], []
    for widths in WIDTHS:
        for place, group in group_labels(points, widths).items():
            label = "number" if widths.numbered else "method"
            values = [{name: point[name] for name in (label, "accuracy", "opis")} for point in group]
            beside = alt.Chart(alt.Data(values=values))
            if place.is_far:
                lines.append(draw_leader(beside, place, widths).encode(x=x, y=y, x2="accuracy:Q", y2="opis:Q"))
            words.append(draw_label(beside, place, widths).encode(x=x, y=y, text=f"{label}:N"))
    return alt.layer(front, across, along, *lines, dots, *words).properties(width="container", height=HEIGHT)


def draw_leader(points: Any, place: LabelOffset, widths: WidthRange) -> Any:
    """Lines from points to their labels."""
    alt = import_altair()
    x, y = place.line_end
    return points.mark_rule(opacity=alt.ExprRef(f"0.6 * ({widths.opacity})"), x2Offset=x, y2Offset=y)


def draw_label(points: Any, place: LabelOffset, widths: WidthRange) -> Any:
    """Labels at a place beside their points."""
    alt = import_altair()
    shown = alt.ExprRef(widths.opacity)
    return points.mark_text(align=place.align, baseline="middle", dx=place.dx, dy=place.dy, fontSize=11, opacity=shown)
