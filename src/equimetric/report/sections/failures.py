"""The runs that failed, with their reasons."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.answer_text import missing_runs_sentence
from equimetric.report.section import section
from equimetric.studies.records import StudyRecord

__all__ = ["failures_section"]

TEMPLATE = """
{% if failed %}
<p class="lead">These runs are in no mean above.</p>
<div class="scroll" role="region" aria-label="Errors of failed runs" tabindex="0">
<table class="failures">
  <thead><tr><th scope="col">Method</th><th scope="col" class="number">Seed</th><th scope="col">Reason</th></tr></thead>
  <tbody>
  {% for run in failed %}
    <tr>
      <th scope="row"><span class="name">{{ run.method | breakable }}</span></th>
      <td class="number">{{ run.seed }}</td>
      <td class="reason">{{ run.error or "no reason was recorded" }}</td>
    </tr>
  {% endfor %}
  </tbody>
</table>
</div>
{% else %}
<p class="empty">{{ ended }} that ended finished without an error.{{ " " ~ missing }}</p>
{% endif %}
"""

LINK = "Failed runs{% if failed %} ({{ failed | length }}){% endif %}"


@section("failures", title="Failed runs", link=LINK, order=86, template=TEMPLATE)
def failures_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """The failed runs, and the numbers of those that have ended and that have not; None of one run that finished."""
    if len(study.runs) == 1 and not study.failed and not study.missing:
        return None
    ended = "The only run" if len(study.runs) == 1 else f"All {len(study.runs)} runs"
    return {"failed": study.failed, "ended": ended, "missing": missing_runs_sentence(study)}
