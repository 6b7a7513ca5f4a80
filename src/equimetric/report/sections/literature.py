"""Papers versus reality: what papers report over old baselines, what this study measures, and published values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from equimetric.escaping import one_line
from equimetric.published.improvement import Accuracy, Improvement
from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import PALETTE
from equimetric.report.papers_versus_reality import accuracy_table, improvement_table
from equimetric.report.section import section
from equimetric.report.study_literature import published_table, study_accuracies, study_improvements
from equimetric.studies.records import StudyRecord

__all__ = ["literature_section"]

TEMPLATE = """
{% if figures %}
<p class="lead">How accurate methods are, and how much better than {{ bases }}: as their papers report it, mostly by precision at 1, and as this study measures it by {{ study.primary_metric }} under equal conditions.</p>
{% for figure in figures %}
{{ figure | chart }}
{% endfor %}
{% endif %}
{% for table in tables %}
<details>
  <summary>{{ table.title }}</summary>
  {{ table | table }}
</details>
{% endfor %}
"""  # noqa: E501


@section("literature", title="Papers versus reality", link="Papers vs reality", order=70, template=TEMPLATE)
def literature_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """A figure and a table for each base, and the published values of the same methods; None without any."""
    improvements = study_improvements(study)
    bases = list(dict.fromkeys(one.base for one in improvements))
    published = published_table(study)
    accuracies = study_accuracies(study)
    tables = [accuracy_table(accuracies)] if accuracies else []
    tables += [improvement_table(improvements, base) for base in bases] + ([] if published is None else [published])
    if not tables:
        return None
    figures = accuracy_figures(accuracies)
    figures += [improvement_figure([one for one in improvements if one.base == base], base) for base in bases]
    return {"figures": figures, "tables": tables, "bases": " and ".join(f"{base} loss" for base in bases)}


def accuracy_figures(accuracies: Sequence[Accuracy]) -> list[Figure]:
    """Accuracy over the years, of papers and of this study: a figure for each."""
    figures = []
    for number, source in enumerate(dict.fromkeys(one.source for one in accuracies)):
        own = [one for one in accuracies if one.source == source]
        averaged = any(one.n > 1 for one in own)
        figures.append(
            Figure(
                f"accuracies-{number}",
                lambda own=own: draw_accuracies(own),  # type: ignore[misc]
                f"Precision at 1 of methods in the order of their publication: {source}.",
                f"{source}: methods in the order of their publication."
                + (" Contrastive and triplet loss are means over the papers that report them." if averaged else ""),
            )
        )
    return figures


def draw_accuracies(accuracies: Sequence[Accuracy]) -> Any:
    """Dots through lines, one for each data set, from 0 to 100 %."""
    alt = import_altair()
    values = [
        {
            "method": one_line(one.method if one.year is None else f"{one.method} {one.year}"),
            "dataset": one_line(one.dataset),
            "accuracy": round(one.value, 3),
            "papers": one.n,
        }
        for one in accuracies
    ]
    order = list(dict.fromkeys(value["method"] for value in values))
    datasets = list(dict.fromkeys(value["dataset"] for value in values))
    return (
        alt.Chart(alt.Data(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X("method:N", title="method, in order of publication", sort=order, axis=alt.Axis(labelAngle=-35)),
            y=alt.Y("accuracy:Q", title="precision at 1 (%)", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color("dataset:N", scale=alt.Scale(domain=datasets, range=list(PALETTE)[: len(datasets)])),
            tooltip=["method:N", "dataset:N", alt.Tooltip("accuracy:Q", format=".1f"), "papers:Q"],
        )
        .properties(width="container", height=240)
    )


def improvement_figure(improvements: Sequence[Improvement], base: str) -> Figure:
    """Every improvement over one base as a dot against the year of publication, papers and this study apart."""
    return Figure(
        f"improvements-{base}",
        lambda: draw_improvements(improvements, base),
        f"Relative improvement over {base} loss against the year of publication: papers, and this study.",
        f"Each dot is one method on one data set; the line is the mean of a year. Improvement over {base} loss in "
        "percent of its value; for papers both numbers are of one paper, here both are of this study.",
    )


def draw_improvements(improvements: Sequence[Improvement], base: str) -> Any:
    """Dots and lines of means; two sources, two colours and two shapes."""
    alt = import_altair()
    values = [
        {
            "source": one_line(one.source),
            "method": one_line(one.method),
            "dataset": one_line(one.dataset),
            "year": one.year,
            "percent": round(one.percent, 3),
        }
        for one in improvements
        if one.year is not None
    ]
    sources = list(dict.fromkeys(value["source"] for value in values))
    colours = [PALETTE[1], PALETTE[0], *PALETTE[2:]][: len(sources)]
    colour = alt.Color("source:N", scale=alt.Scale(domain=sources, range=colours))
    shape = alt.Shape("source:N", scale=alt.Scale(domain=sources, range=["triangle-up", "circle"]))
    title = f"improvement over {base} loss (%)"
    data = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X(
            "year:Q",
            title="year of publication",
            scale=alt.Scale(zero=False, padding=12),
            axis=alt.Axis(format="d", tickMinStep=1),
        ),
        color=colour,
    )
    dots = data.mark_point(filled=True, size=48, opacity=0.55).encode(
        y=alt.Y("percent:Q", title=title),
        shape=shape,
        tooltip=["method:N", "dataset:N", "source:N", alt.Tooltip("percent:Q", title="improvement (%)", format="+.1f")],
    )
    means = data.mark_line(strokeWidth=2.5).encode(y=alt.Y("mean(percent):Q", title=title))
    zero = alt.Chart(alt.Data(values=[{"percent": 0}])).mark_rule(opacity=0.6).encode(y=alt.Y("percent:Q", title=title))
    return alt.layer(zero, dots, means).properties(width="container", height=280)
