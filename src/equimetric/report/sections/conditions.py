"""The conditions that all methods share."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.section import section
from equimetric.studies.records import StudyRecord

__all__ = ["conditions_section"]

TEMPLATE = """
<table class="conditions">
  <tbody>
  {% for condition, value in conditions.items() %}
    <tr><th scope="row">{{ condition }}</th><td>{{ value }}</td></tr>
  {% endfor %}
  </tbody>
</table>
"""


@section("conditions", title="Equal for every method", link="Conditions", order=20, template=TEMPLATE)
def conditions_section(study: StudyRecord) -> Mapping[str, Any]:
    """Name → value of each shared condition."""
    return {"conditions": study.conditions}
