"""Validation during training, and what runs noticed there."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.curve_figure import curve_figure
from equimetric.report.section import section
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["curves_section"]

TEMPLATE = """
{% if figure %}
{{ figure | chart }}
{% else %}
<p class="empty">No validation was logged during training.</p>
{% endif %}
{% if study.grouped_notes %}
<ul class="notes">
  {% for where, note in study.grouped_notes %}
  <li class="warning"><span class="name">{{ where | breakable }}</span>: {{ note }}</li>
  {% endfor %}
</ul>
{% endif %}
"""


@section("curves", title="Validation during training", link="Curves", order=40, template=TEMPLATE)
def curves_section(study: StudyRecord) -> Mapping[str, Any]:
    """The figure, None where nothing was logged."""
    return {"figure": curve_figure(study, comparison_table(study))}
