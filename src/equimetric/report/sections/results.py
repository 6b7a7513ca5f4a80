"""The comparison table, and the primary metric of every method as a figure."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.interval_figure import interval_figure
from equimetric.report.section import section
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["results_section"]

TEMPLATE = """
<div class="scroll" role="region" aria-labelledby="results-title" tabindex="0">
<table class="results">
  <thead>
    <tr>
      <th scope="col">Method</th>
      <th scope="col" class="number">Runs</th>
      {% for column in table.columns %}
      <th scope="col" class="number{% if loop.first %} primary{% endif %}">
        {{- column.metric }}{% if column.percent %} <span class="unit">%</span>{% endif -%}
      </th>
      {% endfor %}
      {% if table.baseline %}
      <th scope="col" class="wrap">vs {{ table.baseline }}</th>
      <th scope="col">Group</th>
      {% endif %}
      <th scope="col" class="number wrap">Time
per run</th>
      <th scope="col" class="number">Parameters</th>
    </tr>
  </thead>
  {% for kind, rows in table.rows | groupby("kind") %}
  <tbody class="{{ kind }}">
  {% for row in rows %}
    <tr>
      <th scope="row"><span class="name">{{ row.method | breakable }}</span>
        {%- if kind == "baseline" %} <span class="badge">baseline</span>{% endif -%}
      </th>
      <td class="number{% if row.failed %} warning wrap{% endif %}">{{ row.runs | replace(", ", ",\n") }}</td>
      {% for cell in row.cells %}
      {% set column = table.columns[loop.index0] %}
      <td class="number{% if loop.first %} primary{% endif %}">
        {%- if cell is none -%}
        –<span class="half"></span>
        {%- else -%}
        {% if loop.first and row.emphasis %}<strong class="{{ row.emphasis }}">{{ column.number(cell.mean) }}</strong>
        {%- else %}{{ column.number(cell.mean) }}{% endif %}<span class="half">{{ table.half_width(column, cell) }}</span>
        {%- if table.fewer_seeds(row, cell) %} <span class="unit">n = {{ table.fewer_seeds(row, cell) }}</span>{% endif %}
        {%- endif -%}
      </td>
      {% endfor %}
      {% if table.baseline %}
      <td>{{ table.verdict_text(row) }}</td>
      <td>{{ row.group or "–" }}</td>
      {% endif %}
      <td class="number">{{ row.duration }}</td>
      <td class="number">{{ row.size }}</td>
    </tr>
  {% endfor %}
  </tbody>
  {% endfor %}
</table>
</div>
<ul class="notes">
  {% for footnote in table.footnotes %}
  <li>{{ footnote }}</li>
  {% endfor %}
  <li>Ordered by {{ metric }}. The same table was written as table.md, table.csv and table.tex.</li>
</ul>
{% if figure %}
{{ figure | chart }}
{% else %}
<p class="empty">No run finished, so there is nothing to draw.</p>
{% endif %}
"""  # noqa: E501


@section("results", title="Results", link="Results", order=30, template=TEMPLATE)
def results_section(study: StudyRecord) -> Mapping[str, Any]:
    """The table, and the figure of its first column."""
    table = comparison_table(study)
    measured = any(row.cells[0] is not None for row in table.rows)
    return {
        "table": table,
        "metric": study.primary_metric,
        "figure": interval_figure(study, table) if measured else None,
    }
