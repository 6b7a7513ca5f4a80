"""What the study compares, in sentences."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.section import section
from equimetric.studies.records import StudyRecord

__all__ = ["statement_section"]

TEMPLATE = """
{% for sentence in sentences %}
<p>{{ sentence }}</p>
{% endfor %}
"""


@section(
    "statement",
    title="What was {{ 'measured' if single else 'compared' }}, and what it can show",
    link="Claims",
    order=60,
    template=TEMPLATE,
)
def statement_section(study: StudyRecord) -> Mapping[str, Any]:
    """The sentences of the study."""
    return {"sentences": study.statement}
