"""Validation during training, and what runs noticed there."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.figures import validation_curves
from equimetric.report.section import inline_svg, section
from equimetric.studies.records import StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["curves_section"]

TEMPLATE = """
{% if figure %}
<figure>
  <div class="scroll" role="img" aria-label="
    {{- metric }} on the validation classes against the training step, one line per method.">{{ figure }}</div>
  <figcaption>{{ metric }} on the validation classes. A line is the mean over seeds; its band reaches from the lowest to the highest seed.</figcaption>
</figure>
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
"""  # noqa: E501


@section("curves", title="Validation during training", link="Curves", order=40, template=TEMPLATE)
def curves_section(study: StudyRecord) -> Mapping[str, Any]:
    """The figure, None where nothing was logged."""
    figure = validation_curves(study, comparison_table(study))
    return {"metric": study.primary_metric, "figure": inline_svg(figure)}
