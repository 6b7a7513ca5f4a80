"""What embeddings alone measure, and where they are from."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.section import section
from equimetric.studies.embeddings_record import EmbeddingsRecord

__all__ = ["measures_section"]

TEMPLATE = """
<table class="conditions">
  <tbody>
  {% for metric, value in record.metrics.items() %}
    <tr><th scope="row">{{ metric }}</th><td>{{ "%.4f" | format(value) }}
      {%- if metric in record.intervals %}
      ({{ "%.4f to %.4f" | format(*record.intervals[metric]) }})
      {%- endif %}</td></tr>
  {% endfor %}
  {% for fact, value in record.facts.items() %}
    <tr><th scope="row">{{ fact }}</th><td>{{ value }}</td></tr>
  {% endfor %}
  </tbody>
</table>
"""


@section("measures", title="Measured", link="Measured", order=10, template=TEMPLATE, record_types=(EmbeddingsRecord,))
def measures_section(record: EmbeddingsRecord) -> Mapping[str, Any]:  # noqa: ARG001  (the template reads the record)
    """Metrics and facts, which the template takes from the record."""
    return {}
