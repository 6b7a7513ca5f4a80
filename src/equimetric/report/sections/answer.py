"""The answer in one paragraph and one picture: which are better, which cannot be told apart, what it would take."""

from collections.abc import Mapping
from typing import Any

from equimetric.escaping import one_line
from equimetric.report.answer_text import NO_BREAK_SPACE, answer, missing_runs_sentence, undecided_sentences
from equimetric.report.interval_figure import interval_figure
from equimetric.report.section import is_single, section
from equimetric.studies.judgement import judge_study
from equimetric.studies.records import StudyRecord
from equimetric.studies.statistics import TwoWayInterval
from equimetric.studies.table import ComparisonTable, comparison_table

__all__ = ["answer_section"]

TEMPLATE = """
{% if missing %}
<p class="warning">Unfinished: {{ missing }} The same <code>equimetric compare</code> command resumes.</p>
{% endif %}
<p class="answer">{{ sentences | join(" ") }}</p>
{% if failed %}
<p class="warning">{% if single %}The run failed; <a href="#failures">its reason</a> is given below.{% else %}{{ failed }} of {{ runs }} runs failed; <a href="#failures">their reasons</a> are listed below.{% endif %}
{%- for runs, reason in reasons %}<br>{{ runs }}: {{ reason }}{% endfor %}</p>
{% endif %}
{% if noted %}
<p class="warning">{% if single %}The run has{% else %}{{ noted }} of {{ runs }} runs have{% endif %} <a href="#training">notes</a> below the curves of training.</p>
{% endif %}
{{ figure | chart }}
{% if needs %}
<details>
  <summary>What it would take to tell the tied methods apart</summary>
  <ul class="notes">
  {% for sentence in needs %}
    <li>{{ sentence }}</li>
  {% endfor %}
  </ul>
</details>
{% endif %}
"""  # noqa: E501


REASONS_SHOWN = 3


@section("answer", title="The answer", order=5, template=TEMPLATE)
def answer_section(study: StudyRecord) -> Mapping[str, Any]:
    """Sentences, the picture, and the seeds or classes that undecided pairs would need."""
    table = comparison_table(study)
    pairs = judge_study(study).methods
    measured = any(row.cells[0] is not None for row in table.rows)
    sentences = [*answer(study, table, pairs), *class_interval_sentence(study, table)]
    return {
        "sentences": sentences if measured else ["No run finished, so there is nothing to compare."],
        "needs": [] if pairs is None else undecided_sentences(pairs),
        "figure": interval_figure(study, table) if measured and len(table.rows) > 1 else None,
        "missing": missing_runs_sentence(study),
        "failed": len(study.failed),
        "reasons": [(runs, one_line(reason)) for runs, reason in study.grouped_failures[:REASONS_SHOWN]],
        "noted": sum(bool(run.notes) for run in study.runs),
        "runs": len(study.runs),
    }


def class_interval_sentence(study: StudyRecord, table: ComparisonTable) -> list[str]:
    """What other classes would change of the score of a single run, which has no interval over seeds."""
    cell = table.rows[0].cells[0] if is_single(study) else None
    if not isinstance(cell, TwoWayInterval) or not cell.seeds_unknown or not cell.variance > 0:
        return []
    column = table.columns[0]
    unit = f"{NO_BREAK_SPACE}%" if column.percent else ""
    low, high = (f"{column.number(end)}{unit}" for end in (cell.low, cell.high))
    confidence = f"{100 * cell.confidence:g}{NO_BREAK_SPACE}%"
    return [
        f"The {confidence} interval for other classes of the same kind is {low} to {high}; "
        "one run does not tell what another seed would change."
    ]
