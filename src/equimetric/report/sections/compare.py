"""Two methods, class by class and query by query: where the one wins, and where it loses."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import PALETTE
from equimetric.report.section import section
from equimetric.report.sections.gallery import data_uri
from equimetric.studies.judgement import Judgement, judge_study
from equimetric.studies.query_scores import QueryScores
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["bin_differences", "compare_section"]

STEPS = 10_000
"""Scores are stored as whole numbers of this many steps."""

BINS = 20
"""Bins on each side of zero."""

PICTURES = 60
"""Queries with a picture: those that methods differ in most."""

TEMPLATE = """
<form class="controls">
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
<p id="compare-query-words"></p>
{% endif %}
{% if pictures %}
<h3>Queries that changed</h3>
<div class="pair">
  <div><p class="lead">Better with A</p><ul class="changed" id="compare-query-wins"></ul></div>
  <div><p class="lead">Better with B</p><ul class="changed" id="compare-query-losses"></ul></div>
</div>
<p class="lead">Of the {{ pictures }} test queries in which the methods differ most.</p>
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
    listed = next(run.classes for run in study.runs if run.method == pair[0] and run.classes is not None)
    column = comparison_table(study).columns[0]
    queries = study.queries
    shown = [] if queries is None else most_changed(queries)
    payload = {
        "metric": column.metric,
        "heading": column.heading,
        "scale": column.scale,
        "decimals": column.decimals,
        "steps": STEPS,
        "classes": list(listed.names),
        "counts": list(listed.queries),
        "scores": {row: pack(values) for row, values in means.items()},
        "queries": None if queries is None else query_payload(queries, shown),
    }
    first, second = pair
    return {
        "names": [row.method for row in comparison_table(study).rows if row.method in means],
        "first": first,
        "second": second,
        "payload": payload,
        "queries": queries is not None,
        "pictures": len(shown),
        "figure": difference_figure(first, second, column.scale * (means[first] - means[second]), column.heading),
    }


def default_pair(judgement: Judgement) -> tuple[str, str] | None:
    """The best trained row and the study's baseline, or the next best where the baseline is the best."""
    if judgement.pairs is None:
        return None
    best, second = list(judgement.pairs.rows)[:2]
    baseline = judgement.baseline
    return best, second if baseline in (None, best) else baseline or second


def pack(values: NDArray[np.float64]) -> str:
    """Scores between 0 and 1 as two bytes each, little end first."""
    return base64.b64encode(np.round(STEPS * values.clip(0, 1)).astype("<u2").tobytes()).decode("ascii")


def most_changed(queries: QueryScores) -> list[int]:
    """The queries that rows differ in most; none where there are no images."""
    if queries.image is None:
        return []
    spread = np.ptp(np.stack(list(queries.scores.values())), axis=0)
    order = np.argsort(-spread, kind="stable")[:PICTURES]
    return [int(place) for place in order if spread[place] > 0]


def query_payload(queries: QueryScores, shown: Sequence[int]) -> dict[str, Any]:
    """The scores of all queries by row, and pictures of some of them."""
    picture = queries.image
    pictures = [
        {"query": place, "name": queries.class_names[place], "image": data_uri(picture(int(queries.index[place])))}
        for place in shown
        if picture is not None
    ]
    return {"scores": {row: pack(values) for row, values in queries.scores.items()}, "pictures": pictures}


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
    found, counts = np.unique(places, return_counts=True)
    return [
        {
            "low": round(place * width, 6),
            "high": round((place + 1) * width, 6),
            "count": count,
            "side": "A" if place >= 0 else "B",
        }
        for place, count in zip(found.tolist(), counts.tolist(), strict=True)
    ]


def difference_figure(first: str, second: str, differences: NDArray[np.float64], heading: str) -> Figure:
    """How many classes differ by how much."""
    return Figure(
        "compare",
        lambda: draw_differences(bin_differences(differences), heading),
        "Number of test classes by the difference of the two methods.",
        f"A = {first}, B = {second} at first: how many test classes have which difference, means over seeds. Classes "
        "without a difference are not drawn.",
    )


def draw_differences(values: list[dict[str, Any]], heading: str) -> Any:
    """Bars on both sides of zero."""
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
            x=alt.X("low:Q", bin="binned", title=f"A − B, {heading} of a class", axis=alt.Axis(format="+~g")),
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
