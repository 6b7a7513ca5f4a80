"""Two methods, class by class and query by query: where the one wins, and where it loses."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.escaping import one_line
from equimetric.report.figure import Figure, import_altair
from equimetric.report.page_budget import image_byte_budget
from equimetric.report.palette import PALETTE
from equimetric.report.pictures import Thumbnails
from equimetric.report.section import section
from equimetric.studies.judgement import Judgement, judge_study
from equimetric.studies.query_scores import QueryComparison
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import Column, comparison_table

__all__ = ["bin_differences", "compare_section"]

STEPS = 10_000
"""Scores are stored as whole numbers of this many steps."""

BINS = 20
"""Bins on each side of zero."""

MAX_CHANGED_QUERIES, EXTREMES = 60, 12
"""Queries that are shown: those that methods differ in most, these two ends of the two methods shown first."""

NEIGHBOURS = 5

DESCRIPTION = "Number of test classes by the difference of the two methods"
CAPTION = "how many test classes have which difference, means over seeds. Classes without a difference are not drawn."

SIDE = 56
"""Of the images, in pixels."""

TEMPLATE = """
<form class="controls chooser" hidden>
  <label>A <select id="compare-first">{% for name in names %}<option{% if name == first %} selected{% endif %}>{{ name }}</option>{% endfor %}</select></label>
  <label>B <select id="compare-second">{% for name in names %}<option{% if name == second %} selected{% endif %}>{{ name }}</option>{% endfor %}</select></label>
</form>
<p id="compare-words"></p>
{{ figure | chart }}
<div class="pair">
  <div>
    <h3 id="compare-wins-title">Classes where A wins most</h3>
    <table class="results plain" id="compare-wins" aria-labelledby="compare-wins-title"></table>
  </div>
  <div>
    <h3 id="compare-losses-title">Classes where A loses most</h3>
    <table class="results plain" id="compare-losses" aria-labelledby="compare-losses-title"></table>
  </div>
</div>
{% if queries %}
<h3>Queries that changed</h3>
<p id="compare-query-words"></p>
{% endif %}
{% if changed %}
<p class="keys">Nearest neighbours under A and under B, nearest first: <span class="key right"><span class="mark">✓</span> same class</span> <span class="key wrong"><span class="mark">✗</span> another class</span></p>
<div class="pair">
  <div><h4 id="compare-query-wins-title">Better with A</h4><ul class="changed" id="compare-query-wins" aria-labelledby="compare-query-wins-title"></ul></div>
  <div><h4 id="compare-query-losses-title">Better with B</h4><ul class="changed" id="compare-query-losses" aria-labelledby="compare-query-losses-title"></ul></div>
</div>
<ul class="notes"><li>Out of {{ changed }} test queries: those that these two methods, and all methods, differ in most. Scores ({{ figure_heading }}) are {{ averaged }}; neighbours are those of the first run.</li></ul>
{% endif %}
{{ payload | json("compare") }}
"""  # noqa: E501


@section("compare", title="Compare two methods", link="Compare two", order=20, template=TEMPLATE)
def compare_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """Scores of every class by row, and of every query where runs have kept them; None without two such rows."""
    judgement = judge_study(study)
    pair = default_pair(judgement)
    if pair is None:
        return None
    means = {row: scores.values.mean(axis=0) for row, scores in judgement.scores.items()}
    # Baselines last.
    ranked = [row.method for row in sorted(comparison_table(study).rows, key=lambda row: row.kind == "baseline")]
    listed = next(run.classes for run in study.runs if run.method == pair[0] and run.classes is not None)
    column = comparison_table(study).columns[0]
    queries = study.queries
    shown = [] if queries is None or queries.images is None else most_changed(queries, pair)
    order = [*pair, *(row for row in ranked if row not in pair)]
    payload = {
        "metric": column.metric,
        "heading": column.heading,
        "scale": column.scale,
        "decimals": column.decimals,
        "steps": STEPS,
        "caption": CAPTION,
        "description": DESCRIPTION,
        "classes": list(listed.names),
        "counts": list(listed.queries),
        "scores": {row: pack(values) for row, values in means.items()},
        "queries": None
        if queries is None
        else query_payload(queries, shown, order, image_byte_budget(study, "compare")),
    }
    first, second = pair
    return {
        "names": [row for row in ranked if row in means],
        "first": first,
        "second": second,
        "payload": payload,
        "queries": queries is not None,
        "changed": len(shown),
        "figure_heading": column.heading,
        "averaged": "" if queries is None else describe_runs(queries.runs),
        "figure": difference_figure(first, second, column.scale * (means[first] - means[second]), column),
    }


def default_pair(judgement: Judgement) -> tuple[str, str] | None:
    """The best trained row and the study's baseline, or the next best where the baseline is the best."""
    if judgement.methods is None:
        return None
    best, second = list(judgement.methods.rows)[:2]
    baseline = judgement.baseline
    return best, second if baseline in (None, best) else baseline or second


def pack(values: NDArray[np.float64]) -> str:
    """Scores between 0 and 1 as two bytes each, little end first."""
    return base64.b64encode(np.round(STEPS * values.clip(0, 1)).astype("<u2").tobytes()).decode("ascii")


def most_changed(queries: QueryComparison, pair: tuple[str, str]) -> list[int]:
    """The queries that A wins and loses most of the two rows shown first, then those that all rows differ in most."""
    scores = queries.scores
    chosen: list[int] = []
    if all(row in scores for row in pair):
        differences = scores[pair[0]] - scores[pair[1]]
        order = np.argsort(-differences, kind="stable")
        ends = zip(order[:EXTREMES], order[::-1][:EXTREMES], strict=True)
        chosen = [int(place) for end in ends for place in end if differences[place] != 0]
    spread = np.ptp(np.stack(list(scores.values())), axis=0)
    others = [int(place) for place in np.argsort(-spread, kind="stable")[:MAX_CHANGED_QUERIES] if spread[place] > 0]
    return list(dict.fromkeys([*chosen, *others]))[:MAX_CHANGED_QUERIES]


def query_payload(
    queries: QueryComparison, shown: Sequence[int], order: Sequence[str], byte_budget: int
) -> dict[str, Any]:
    """The scores of all queries by row; for those that are shown, what each row retrieves, with pictures that fit.

    Images, labels and neighbours are by row of the data set; rows of the table come in `order`, the two
    that are shown first at its head, within `byte_budget`.
    """
    scores = {row: pack(values) for row, values in queries.scores.items()}
    if queries.images is None or not shown:
        return {"scores": scores, "shown": []}
    pictures = Thumbnails(queries.images, byte_budget, side=SIDE)
    rows = [int(queries.index[place]) for place in shown]
    pictures.add(*rows)
    neighbours = {
        method: [[int(row) for row in queries.neighbours[method][place][:NEIGHBOURS] if row >= 0] for place in shown]
        for method in order
        if method in queries.neighbours
    }
    # What is seen first comes first: both methods of the pair, query by query.
    for retrieved in zip(*(neighbours[method] for method in order[:2] if method in neighbours), strict=True):
        pictures.add(*chain(*retrieved))
    for nearest in chain(*neighbours.values()):
        pictures.add(*nearest)
    used = dict.fromkeys([*rows, *(row for retrieved in neighbours.values() for one in retrieved for row in one)])
    labels = {row: int(queries.images.labels[row]) for row in used}
    return {
        "scores": scores,
        "shown": [{"query": place, "row": row} for place, row in zip(shown, rows, strict=True)],
        "neighbours": neighbours,
        "images": {str(row): source for row, source in pictures.data_urls.items()},
        "labels": {str(row): label for row, label in labels.items()},
        "names": {str(label): queries.images.class_names[label] for label in sorted(set(labels.values()))},
    }


def describe_runs(runs: int) -> str:
    """What the scores of single queries are."""
    return "of one run of each method" if runs == 1 else f"means over {runs} runs of each method"


def bin_differences(differences: NDArray[np.float64]) -> list[dict[str, float | int | str]]:
    """Classes counted in bins of equal width, zero at an edge; those without a difference as a bin of their own.

    The width is that of the largest difference over the number of bins, rounded up to 1, 2 or 5 times a power of ten.
    """
    largest = float(np.abs(differences).max(initial=0.0))
    if largest == 0:
        return [{"low": 0.0, "high": 0.0, "count": len(differences), "side": "equal"}]
    power = 10.0 ** np.floor(np.log10(largest / BINS))
    width = next(float(power * step) for step in (1, 2, 5, 10) if power * step >= largest / BINS)
    places = np.where(differences > 0, np.ceil(differences / width) - 1, np.floor(differences / width)).astype(int)
    places = places[differences != 0]
    bins, counts = np.unique(places, return_counts=True)
    return [
        {
            "low": round(place * width, 6),
            "high": round((place + 1) * width, 6),
            "count": count,
            "side": "A" if place >= 0 else "B",
        }
        for place, count in zip(bins.tolist(), counts.tolist(), strict=True)
    ]


def difference_figure(first: str, second: str, differences: NDArray[np.float64], column: Column) -> Figure:
    """How many classes differ by how much."""
    return Figure(
        "compare",
        lambda: draw_differences(bin_differences(differences), column),
        f"{DESCRIPTION}: {first} (A) less {second} (B).",
        f"A = {first}, B = {second}: {CAPTION}",
    )


def draw_differences(values: list[dict[str, Any]], column: Column) -> Any:
    """Bars on both sides of zero."""
    title = f"A − B, {column.metric} of a class{' (points)' if column.percent else ''}"
    alt = import_altair()
    colour = alt.Color(
        "side:N",
        scale=alt.Scale(domain=["A", "B"], range=[PALETTE[0], PALETTE[1]]),
        legend=alt.Legend(labelExpr="datum.label + ' is better'"),
    )
    data = alt.InlineData(values=values, name="differences")
    bars = (
        alt.Chart(data)
        .mark_bar(strokeWidth=0)
        .encode(
            x=alt.X("low:Q", bin="binned", title=one_line(title), axis=alt.Axis(format="+~g")),
            x2="high:Q",
            y=alt.Y("count:Q", title="classes"),
            color=colour,
            tooltip=[
                alt.Tooltip("low:Q", title="from", format="+.3~f"),
                alt.Tooltip("high:Q", title="to", format="+.3~f"),
                alt.Tooltip("count:Q", title="classes"),
            ],
        )
    )
    return bars.properties(width="container", height=200)
