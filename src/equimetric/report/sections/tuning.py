"""What was tuned: the history of every search, which parameters mattered, and optima at the edge of their range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from equimetric.escaping import one_line
from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import PALETTE
from equimetric.report.search_table import edge_groups, importance, search_table
from equimetric.report.section import section
from equimetric.studies.records import SearchRecord, StudyRecord

__all__ = ["tuning_section"]

TEMPLATE = """
{% if edges %}
<p class="warning">{{ count }} chosen {{ "value lies" if count == 1 else "values lie" }} at the edge of the range that was searched, or close to it; the best may lie beyond.</p>
<ul class="notes">
  {% for sentence, methods in edges %}
  <li>{{ sentence }}: {% for method in methods %}<span class="name">{{ method | breakable }}</span>{{ ", " if not loop.last }}{% endfor %}</li>
  {% endfor %}
</ul>
{% else %}
<p class="lead">No chosen value lies at the edge of the range that was searched.</p>
{% endif %}
{{ history | chart }}
{{ shares | chart }}
<details>
  <summary>What was chosen</summary>
  {{ table | table }}
</details>
"""  # noqa: E501


@section("tuning", title="Tuning", link="Tuning", order=76, template=TEMPLATE)
def tuning_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """Warnings, the history and the importance as figures, and the table; None where nothing was tuned."""
    table = search_table(study)
    if table is None:
        return None
    edges = edge_groups(study)
    shares = {method: importances for method, search in study.searches.items() if (importances := importance(search))}
    return {
        # The page says above the figures which values lie at an edge.
        "table": replace(table, footnotes=table.footnotes[:1]),
        "edges": list(edges.items()),
        "count": sum(map(len, edges.values())),
        "history": history_figure(study),
        "shares": importance_figure(shares),
    }


def history_figure(study: StudyRecord) -> Figure | None:
    """The best validation score after each trial, for every method; None without two trials."""
    searches = {method: search for method, search in study.searches.items() if len(search.trials) > 1}
    if not searches:
        return None
    return Figure(
        "tuning-history",
        lambda: draw_history(searches, study.primary_metric),
        f"Best validation {study.primary_metric} after each trial of the search, one panel per method.",
        f"{study.primary_metric} on validation classes. Dots are trials, the line is the best so far. A line that "
        "still rises at its end says that more trials would have helped.",
    )


def draw_history(searches: Mapping[str, SearchRecord], metric: str) -> Any:
    """Small multiples on a common scale, without the trials that failed."""
    alt = import_altair()
    values = []
    for method, search in searches.items():
        best = float("-inf")
        for number, trial in enumerate(search.trials, start=1):
            if isfinite(trial.score) and trial.score > 0:
                best = max(best, trial.score)
                values.append(
                    {
                        "method": one_line(method),
                        "trial": number,
                        "score": round(100 * trial.score, 3),
                        "best": round(100 * best, 3),
                    }
                )
    y = alt.Scale(zero=False)
    title = f"{one_line(metric)} (%)"
    base = alt.Chart().encode(x=alt.X("trial:Q", title="trial", axis=alt.Axis(tickCount=4, tickMinStep=1, format="d")))
    dots = base.mark_circle(size=18, opacity=0.5, color=PALETTE[0]).encode(
        y=alt.Y("score:Q", title=title, scale=y),
        tooltip=["method:N", "trial:Q", alt.Tooltip("score:Q", title=title, format=".2f")],
    )
    line = base.mark_line(strokeWidth=2, interpolate="step-after", color=PALETTE[1]).encode(
        y=alt.Y("best:Q", title=title, scale=y)
    )
    panel = alt.layer(dots, line, data=alt.Data(values=values)).properties(width=150, height=90)
    order = [one_line(method) for method in searches]
    return panel.facet(facet=alt.Facet("method:N", title=None, sort=order), columns=4)


def importance_figure(shares: Mapping[str, Mapping[str, float]]) -> Figure | None:
    """The share of the variance of trials that each parameter explains; None where none is known."""
    if not shares:
        return None
    return Figure(
        "tuning-importance",
        lambda: draw_importance(shares),
        "Share of the variance of trials that each tuned parameter explains, by method.",
        "fANOVA: how much of the variance of a method's trials each parameter explains. The stronger the "
        "colour, the more it mattered.",
    )


def draw_importance(shares: Mapping[str, Mapping[str, float]]) -> Any:
    """A table of squares, methods by parameters."""
    alt = import_altair()
    values = [
        {"method": one_line(method), "parameter": one_line(name), "share": 100 * share}
        for method, importances in shares.items()
        for name, share in importances.items()
    ]
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("parameter:N", title="parameter", axis=alt.Axis(labelAngle=-30)),
        y=alt.Y("method:N", title=None, sort=[one_line(method) for method in shares]),
    )
    squares = base.mark_rect(color=PALETTE[0]).encode(
        opacity=alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 100], range=[0.05, 1]), legend=None),
        tooltip=["method:N", "parameter:N", alt.Tooltip("share:Q", title="share of the variance (%)", format=".1f")],
    )
    words = base.mark_text(fontSize=10).encode(text=alt.Text("share:Q", format=".0f"))
    return alt.layer(squares, words).properties(width="container", height=22 * len(shares))
