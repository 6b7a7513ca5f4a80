"""What runs noticed: a collapse, or no gain over the start, with what to try."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.section import section
from equimetric.studies.records import StudyRecord

__all__ = ["notes_section"]

TEMPLATE = """
<p class="lead">These runs finished and are in the means above; their figures may not be what the method can reach.</p>
<div class="scroll" role="region" aria-labelledby="notes-title" tabindex="0">
<table class="failures">
  <thead><tr><th scope="col">Method</th><th scope="col" class="number">Seed</th><th scope="col">Note</th></tr></thead>
  <tbody>
  {% for run, note in notes %}
    <tr>
      <th scope="row"><span class="name">{{ run.method | breakable }}</span></th>
      <td class="number">{{ run.seed }}</td>
      <td class="reason">{{ note }}</td>
    </tr>
  {% endfor %}
  </tbody>
</table>
</div>
"""


@section("notes", title="Notes on runs", link="Notes ({{ notes | length }})", order=55, template=TEMPLATE)
def notes_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """The notes of all runs; nothing where there is none."""
    return {"notes": study.notes} if study.notes else None
