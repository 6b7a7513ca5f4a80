"""The weights that methods give to pairs: on a grid of cosines, and on a real batch during training."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from equimetric.dotted import format_setting
from equimetric.errors import EquimetricError
from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import PALETTE
from equimetric.report.section import section
from equimetric.studies.records import StudyRecord

__all__ = ["weights_section"]

COMPANIONS, AGAINST = (0.2, 0.5, 0.8), (0.5,)
POINTS = 61

TEMPLATE = """
<p class="lead">A loss of pairs acts through one weight for each: how hard it pulls a positive closer and pushes a negative away.
The curves move one pair of an anchor whose other pairs stay at cosines 0.2, 0.5 and 0.8 (same kind) and 0.5 (other kind); each is drawn as a share of its largest value. Where a method draws its pairs at random, its weights are means over many draws. Methods with the same curves share a panel.</p>
<div class="panels">
{% for method in curves %}
  <article><h3>{% for name in method.names %}<span class="name">{{ name | breakable }}</span>{{ ", " if not loop.last }}{% endfor %}</h3>{{ method.figure | chart }}</article>
{% endfor %}
</div>
{% if without %}
<ul class="notes">
{% for name, reason in without %}<li><span class="name">{{ name | breakable }}</span>: {{ reason }}</li>{% endfor %}
</ul>
{% endif %}
{% if batches %}
<h3 id="weights-training">On a real batch, during training</h3>
<p class="lead">The mean weight of the pairs of one batch of training images, the same at every validation of the first seed, by the cosine that they have then: a share of the largest of its row. Empty: no such pair.</p>
<div class="panels">
{% for method in batches %}
  <article><h3><span class="name">{{ method.name | breakable }}</span></h3>{{ method.figure | chart }}</article>
{% endfor %}
</div>
{% if not_logged %}
<ul class="notes"><li>Without weights of a batch: {% for name in not_logged %}<span class="name">{{ name | breakable }}</span>{{ ", " if not loop.last }}{% endfor %}. Methods that compare images with proxies or bring several objectives have no weight for two images; nor have runs that did not log it.</li></ul>
{% endif %}
{% endif %}
"""  # noqa: E501


@section("weights", title="What methods pull and push", link="Pair weights", order=44, template=TEMPLATE)
def weights_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """A panel for all trained methods with the same pair weights, and why other methods have none."""
    rows_of: dict[str, list[str]] = {}
    without: list[tuple[str, str]] = []
    for row, (method, options) in study.recipes.items():
        final = {**options, **study.tuned.get(row, {})}
        grid, reason = grid_weights(method, json.dumps(final, sort_keys=True, default=str))
        if grid is None:
            without.append((row, reason))
        else:
            rows_of.setdefault(json.dumps(grid), []).append(row)
    curves = [
        {"names": rows, "figure": curve_panel(number, rows, json.loads(grid), describe_tuned(study, rows))}
        for number, (grid, rows) in enumerate(rows_of.items())
    ]
    batches: list[dict[str, Any]] = []
    for row in study.recipes:
        logged = logged_weights(study, row)
        if logged:
            batches.append({"name": row, "figure": batch_panel(len(batches), row, logged)})
    if not curves and not batches:
        return None
    drawn = {batch["name"] for batch in batches}
    not_logged = [row for row in study.recipes if row not in drawn and study.runs_of(row, "done")]
    return {"curves": curves, "without": without, "batches": batches, "not_logged": not_logged}


@lru_cache(maxsize=256)
def grid_weights(method: str, options: str) -> tuple[dict[str, list[float]] | None, str]:
    """Cosines and weights of a method with options in JSON; without weights, the reason."""
    from equimetric.explain import weight_curves
    from equimetric.objectives import Context, build_objective

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            objective = build_objective(method, json.loads(options), Context(classes=2, dim=64, images=1))
            curves = weight_curves(objective, same_side=COMPANIONS, other_side=AGAINST, points=POINTS)
    except EquimetricError as error:
        return None, str(error)
    except Exception as error:  # a loss of the user's own can raise anything
        return None, f"it cannot be computed: {type(error).__name__}: {error}"
    sides = {"positive": curves.positive.numpy(), "negative": curves.negative.numpy()}
    if not all(np.isfinite(side).all() for side in sides.values()):
        return None, "its weights are not finite at these cosines"
    return {"cosine": curves.similarity.tolist(), **{name: side.tolist() for name, side in sides.items()}}, ""


def cosines(alt: Any) -> dict[str, Any]:
    """The axis of all cosines."""
    return {"scale": alt.Scale(domain=[-1, 1]), "axis": alt.Axis(values=[-1, -0.5, 0, 0.5, 1])}


def describe_tuned(study: StudyRecord, rows: Sequence[str]) -> str:
    """The options of methods that a search chose; '' where nothing was tuned."""
    texts = []
    for row in rows:
        options = ", ".join(f"{key} = {format_setting(value, 4)}" for key, value in study.tuned.get(row, {}).items())
        if options:
            texts.append(f"{row}: {options}" if len(rows) > 1 else options)
    return f" Tuned: {'; '.join(texts)}." if texts else ""


def curve_panel(number: int, names: list[str], grid: Mapping[str, list[float]], tuned: str) -> Figure:
    """The weights of methods with the same curves against the cosine of the pair."""
    largest = {kind: max(map(abs, grid[kind])) for kind in ("positive", "negative")}
    words = ", ".join(f"{kind} {value:.3g}" for kind, value in largest.items())
    return Figure(
        f"weights-{number + 1}",
        lambda: draw_curves(grid, largest),
        f"Weight of a positive and of a negative pair against its cosine: {', '.join(names)}. Largest: {words}.",
        f"Largest weight: {words}.{tuned}",
        title=", ".join(names),
    )


def draw_curves(grid: Mapping[str, list[float]], largest: Mapping[str, float]) -> Any:
    """Two lines, each a share of its largest value."""
    alt = import_altair()
    values = [
        {"cosine": round(cosine, 4), "kind": kind, "share": value / (largest[kind] or 1.0), "weight": value}
        for kind in ("positive", "negative")
        for cosine, value in zip(grid["cosine"], grid[kind], strict=True)
    ]
    scale = alt.Scale(domain=["positive", "negative"], range=[PALETTE[2], PALETTE[0]])
    dash = alt.Scale(domain=["positive", "negative"], range=[[1, 0], [4, 3]])
    return (
        alt.Chart(alt.Data(values=values))
        .mark_line(strokeWidth=2.2)
        .encode(
            x=alt.X("cosine:Q", title="cosine of the pair", **cosines(alt)),
            y=alt.Y("share:Q", title="weight, share of the largest"),
            color=alt.Color("kind:N", scale=scale),
            strokeDash=alt.StrokeDash("kind:N", scale=dash),
            tooltip=["kind:N", alt.Tooltip("cosine:Q"), alt.Tooltip("weight:Q", format=".4g")],
        )
        .properties(width="container", height=170)
    )


def logged_weights(study: StudyRecord, row: str) -> list[Mapping[str, Any]]:
    """The lines of a method's log with the weights of a batch, of the first run that has them."""
    for run in study.runs_of(row, "done"):
        entries = [entry for entry in run.history if entry.get("kind") == "pair_weights"]
        if entries:
            return entries
    return []


def batch_panel(number: int, name: str, logged: list[Mapping[str, Any]]) -> Figure:
    """The weights of a batch at every validation: rows are steps, columns cosines."""
    return Figure(
        f"batch-weights-{number + 1}",
        lambda: draw_batches(logged),
        f"Mean weight that {name} gives to the pairs of a batch, by their cosine, at every validation.",
        title=name,
    )


def draw_batches(logged: list[Mapping[str, Any]]) -> Any:
    """Coloured cells, a row for each step and kind of pairs."""
    alt = import_altair()
    values, order, lowest = [], [], 0.0
    for kind in ("positive", "negative"):
        for line in logged:
            row = f"{kind} {line['step']}"
            order.append(row)
            pairs, weights = line[kind]["pairs"], line[kind]["weight"]
            edges = np.linspace(-1, 1, len(pairs) + 1)
            largest = max(map(abs, weights)) or 1.0
            lowest = min(lowest, min(weights) / largest)
            values += [
                {
                    "row": row,
                    "low": round(float(low), 3),
                    "high": round(float(high), 3),
                    "share": weight / largest,
                    "weight": weight,
                    "pairs": count,
                }
                for low, high, count, weight in zip(edges[:-1], edges[1:], pairs, weights, strict=True)
                if count
            ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_rect()
        .encode(
            x=alt.X("low:Q", title="cosine of the pair", **cosines(alt)),
            x2="high:Q",
            y=alt.Y("row:N", sort=order, title="kind of pair, step"),
            color=alt.Color(
                "share:Q",
                scale=alt.Scale(scheme="viridis", domain=[-1 if lowest < 0 else 0, 1]),
                legend=alt.Legend(title="weight, share of the largest of its row", titleLimit=260),
            ),
            tooltip=["row:N", "low:Q", "high:Q", "pairs:Q", alt.Tooltip("weight:Q", format=".4g")],
        )
        .properties(width="container", height=15 * len(order))
    )
