"""What embeddings alone measure, and where they are from."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.metric_cells import is_percentage, metric_ends, metric_text
from equimetric.report.section import section
from equimetric.studies.embeddings_record import EmbeddingsRecord

__all__ = ["measures_section"]

TEMPLATE = """
<table class="conditions">
  <tbody>
  {% for metric, value in values.items() %}
    <tr><th scope="row">{{ metric }}</th><td>{{ value }}</td></tr>
  {% endfor %}
  {% for fact, value in record.facts.items() %}
    <tr><th scope="row">{{ fact }}</th><td>{{ value }}</td></tr>
  {% endfor %}
  </tbody>
</table>
{% if record.intervals %}
<ul class="notes"><li>In brackets: the 95 % interval, from resampling whole classes.</li></ul>
{% endif %}
"""


@section("measures", title="Measured", link="Measured", order=10, template=TEMPLATE, record_types=(EmbeddingsRecord,))
def measures_section(record: EmbeddingsRecord) -> Mapping[str, Any]:
    """Metrics in their units; the facts are taken from the record."""
    return {"values": {metric: describe(record, metric, value) for metric, value in record.metrics.items()}}


def describe(record: EmbeddingsRecord, metric: str, value: float) -> str:
    """'52.31 % (51.20 to 53.40)'."""
    ends = f" ({metric_ends(metric, *record.intervals[metric])})" if metric in record.intervals else ""
    return f"{metric_text(metric, value)}{' %' if is_percentage(metric) else ''}{ends}"
