"""Fold models side by side, points of sweeps, and what was tuned."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.page import study_tables
from equimetric.report.section import section
from equimetric.studies.records import StudyRecord

__all__ = ["further_tables_section"]

TEMPLATE = """
{% for table in tables %}
<h3>{{ table.title }}</h3>
<div class="scroll" role="region" aria-label="{{ table.title }}" tabindex="0">
<table class="results">
  <thead>
    <tr>{% for column in table.columns %}
      <th scope="col"{% if not column.is_text %} class="number"{% endif %}>{{ column.heading }}</th>{% endfor %}
    </tr>
  </thead>
  <tbody>
  {% for row in table.rows %}
    <tr>{% for cell in row.cells %}
      <td{% if not table.columns[loop.index0].is_text %} class="number"{% endif %}>
        {%- if cell.emphasis %}<strong class="{{ cell.emphasis }}">{{ cell.text }}</strong>
        {%- else %}{{ cell.text }}{% endif -%}
      </td>{% endfor %}
    </tr>
  {% endfor %}
  </tbody>
</table>
</div>
<ul class="notes">
  {% for footnote in table.footnotes %}
  <li>{{ footnote }}</li>
  {% endfor %}
</ul>
{% endfor %}
"""


@section("further", title="Folds, sweeps and tuning", link="Folds, sweeps, tuning", order=35, template=TEMPLATE)
def further_tables_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """All tables but the first; none where a study has no others."""
    _, *others = study_tables(study).values()
    return {"tables": others} if others else None
