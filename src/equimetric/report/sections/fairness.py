"""The fairness ledger: the six-point checklist, what was equal and what varied, waivers, tuning, looks at the test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equimetric.report.section import section
from equimetric.studies.ledger.record import Ledger
from equimetric.studies.ledger.text import CHECKLIST_HEADINGS, checklist
from equimetric.studies.records import StudyRecord

__all__ = ["fairness_section"]

SIGNS = {
    "equal": "✓",
    "met": "✓",
    "declared": "~",
    "waived": "~",
    "differs": "✗",
    "violated": "✗",
    "not stated": "?",
}

TEMPLATE = """
{% macro entries(rows) %}
<div class="scroll" role="region" aria-label="{{ caller() }}" tabindex="0">
<table class="conditions ledger">
  <thead><tr>{% for heading in headings %}<th scope="col">{{ heading | capitalize }}</th>{% endfor %}</tr></thead>
  <tbody>
  {% for factor, status, found in rows %}
    <tr><th scope="row">{{ factor | breakable }}</th><td class="status {{ "fault" if signs[status] == "✗" }}">
      {{- signs[status] }} {{ status }}</td><td>{{ found | breakable }}</td></tr>
  {% endfor %}
  </tbody>
</table>
</div>
{% endmacro %}
{% macro values(heading, table) %}
<h3>{{ heading }}</h3>
<table class="conditions">
  <tbody>
  {% for name, value in table.items() %}
    <tr><th scope="row">{{ name | breakable }}</th><td>{{ value | string | breakable }}</td></tr>
  {% endfor %}
  </tbody>
</table>
{% endmacro %}
{% if ledger %}
<p class="{{ "lead" if fair else "warning" }}">{{ ledger.sentence }}</p>
<h3>The six causes of unfair comparison</h3>
{% call entries(causes) %}The six causes of unfair comparison{% endcall %}
{% if others %}
<h3>What else was checked</h3>
{% call entries(others) %}What else was checked{% endcall %}
{% endif %}
{% for note in ledger.notes %}
<p>{{ note }}</p>
{% endfor %}
{% endif %}
{% if budgets %}
<h3>Tuning budget</h3>
<div class="scroll" role="region" aria-label="Tuning budget" tabindex="0">
<table class="conditions">
  <thead><tr><th scope="col">Method</th><th scope="col">Trials used</th><th scope="col">Trials allowed</th><th scope="col">Tuned</th></tr></thead>
  <tbody>
  {% for row in budgets %}
    <tr><th scope="row"><span class="name">{{ row.method | breakable }}</span></th><td>{{ row.used }}</td><td>{{ row.budget }}</td><td>{{ row.tuned | breakable }}</td></tr>
  {% endfor %}
  </tbody>
</table>
</div>
{% endif %}
{% if study.test_accesses %}
<h3>Looks at the test classes</h3>
<p>{% if not single %}{{ study.runs | length }} runs; {% endif %}{% for command, count in study.test_accesses.items() %}{{ count }} {{ "look" if count == 1 else "looks" }} by {{ ("its own test" if single else "the runs' own tests") if command == "train" else command }}{{ ", " if not loop.last }}{% endfor %}. {{ "A run looks once at its test classes" if single else "A study looks once at the test classes of each final run" }}; every further command that looks is counted.</p>
{% endif %}
{{ values("Conditions", study.conditions) }}
{% if study.row_settings %}{{ values("Set for single methods", study.row_settings) }}{% endif %}
"""  # noqa: E501


@section(
    "fairness",
    title="{{ 'Conditions' if single else 'Fairness ledger' }}",
    link="{{ 'Conditions' if single else 'Fairness' }}",
    order=62,
    template=TEMPLATE,
)
def fairness_section(study: StudyRecord) -> Mapping[str, Any]:
    """The ledger of the study, where it has one; tuning budgets; the shared conditions."""
    ledger = study.ledger
    rows = [] if ledger is None else split_causes(ledger)
    causes, others = rows or ([], [])
    return {
        "ledger": ledger,
        "fair": ledger is not None and ledger.verdict == "fair",
        "headings": CHECKLIST_HEADINGS,
        "signs": SIGNS,
        "causes": causes,
        "others": others,
        "budgets": [
            {
                "method": method,
                "used": len(search.trials),
                "budget": search.budget,
                "tuned": ", ".join(search.space) or "nothing",
            }
            for method, search in study.searches.items()
        ],
    }


def split_causes(ledger: Ledger) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """The checklist in two parts: the numbered causes of the Reality Check, and the rest."""
    lines = list(zip(ledger.entries, checklist(ledger), strict=True))
    causes = [line for entry, line in lines if entry.line.cause]
    return causes, [line for entry, line in lines if not entry.line.cause]
