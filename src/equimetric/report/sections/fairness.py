"""Whether the comparison is fair: the verdict and the checklist of its ledger."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.section import section
from equimetric.studies.ledger.text import CHECKLIST_HEADINGS, checklist
from equimetric.studies.records import StudyRecord

__all__ = ["fairness_section"]

TEMPLATE = """
<p class="{{ "lead" if fair else "warning" }}">{{ sentence }}</p>
<div class="scroll" role="region" aria-labelledby="fairness-title" tabindex="0">
<table class="conditions">
  <thead><tr>{% for heading in headings %}<th scope="col">{{ heading | capitalize }}</th>{% endfor %}</tr></thead>
  <tbody>
  {% for factor, status, found in rows %}
    <tr><th scope="row">{{ factor }}</th><td>{{ status }}</td><td>{{ found }}</td></tr>
  {% endfor %}
  </tbody>
</table>
</div>
{% for note in notes %}
<p>{{ note }}</p>
{% endfor %}
"""


@section("fairness", title="Is it fair?", link="Fairness", order=25, template=TEMPLATE)
def fairness_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """The ledger of the study; nothing where it has none."""
    ledger = study.ledger
    if ledger is None:
        return None
    return {
        "fair": ledger.verdict == "fair",
        "sentence": ledger.sentence,
        "headings": CHECKLIST_HEADINGS,
        "rows": checklist(ledger),
        "notes": ledger.notes,
    }
