"""Fold models side by side, additions, probes, members and costs."""

from collections.abc import Mapping
from typing import Any

from equimetric.report.page import study_tables
from equimetric.report.section import section
from equimetric.studies.records import StudyRecord

__all__ = ["further_tables_section"]

SHOWN_ELSEWHERE = (
    "table", "tuning", "published", "accuracy", "improvement", "thresholds", "training", "ledger", "classes",
)  # fmt: skip
"""Beginnings of the names of tables that have sections of their own."""

TEMPLATE = """
{% for table in tables %}
<h3>{{ table.title }}</h3>
{{ table | table }}
{% endfor %}
"""


@section("further", title="Further tables", link="Further tables", order=84, template=TEMPLATE)
def further_tables_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """All tables that no other section shows; None where a study has none of them."""
    tables = [table for name, table in study_tables(study).items() if not name.startswith(SHOWN_ELSEWHERE)]
    return {"tables": tables} if tables else None
