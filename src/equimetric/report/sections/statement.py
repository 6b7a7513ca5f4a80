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
{% if noted %}
<p class="warning">{{ noted }} of {{ runs }} runs have <a href="#curves">notes</a> below the curves: a collapse, no gain over the start, a metric that is not defined, or a part that never began.</p>
{% endif %}
"""  # noqa: E501


@section("statement", title="What was compared, and what it can show", order=10, template=TEMPLATE)
def statement_section(study: StudyRecord) -> Mapping[str, Any]:
    """The sentences of the study, how many runs failed, and how many have notes."""
    noted = sum(bool(run.notes) for run in study.runs)
    return {"sentences": study.statement, "failed": len(study.failed), "noted": noted, "runs": len(study.runs)}
