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
{% if failed %}
<p class="warning">{{ failed }} of {{ runs }} runs failed; <a href="#failures">their reasons</a> are listed below.</p>
{% endif %}
"""


@section("statement", title="What was compared, and what it can show", order=10, template=TEMPLATE)
def statement_section(study: StudyRecord) -> Mapping[str, Any]:
    """The sentences of the study, and how many runs failed."""
    return {"sentences": study.statement, "failed": len(study.failed), "runs": len(study.runs)}
