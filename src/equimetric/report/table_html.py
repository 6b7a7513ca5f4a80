"""A plain table as HTML, in a region that scrolls where it is wider than the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from equimetric.report.table_data import PlainTable

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["TABLE_TEMPLATE", "render_table"]

TABLE_TEMPLATE = """
<div class="scroll wide" role="region" aria-label="{{ table.title }}" tabindex="0">
<table class="results plain">
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
{% if table.footnotes %}
<ul class="notes">
  {% for footnote in table.footnotes %}
  <li>{{ footnote }}</li>
  {% endfor %}
</ul>
{% endif %}
"""


def render_table(table: PlainTable) -> Markup:
    """The table with its footnotes, without its title."""
    from equimetric.report.section import render_template

    return render_template(TABLE_TEMPLATE, table=table)
