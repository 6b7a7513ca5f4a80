"""What embeddings retrieve wrongly, in words because a file has no images: classes, queries, pairs, hubs; and a map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equimetric.report.fault_tables import fault_tables
from equimetric.report.map_figure import map_figure
from equimetric.report.section import section
from equimetric.studies.embeddings_record import EmbeddingsRecord

__all__ = ["embeddings_faults_section"]

TEMPLATE = """
<p class="lead">Items are named by their row in the file, from 0, and their class; ✓ marks a neighbour of the same class, ✗ one of another.</p>
{% for table in tables %}
<h3>{{ table.title }}</h3>
{{ table | table }}
{% endfor %}
{% if map %}
<h3>A map of the items</h3>
{{ map | chart }}
{% endif %}
"""  # noqa: E501


@section(
    "embeddings_faults",
    title="Where retrieval goes wrong",
    link="Faults",
    order=52,
    template=TEMPLATE,
    record_types=(EmbeddingsRecord,),
)
def embeddings_faults_section(record: EmbeddingsRecord) -> Mapping[str, Any] | None:
    """Tables of faults and the map; None where nothing was kept of the queries."""
    tables = fault_tables(record)
    if not tables or record.profile is None:
        return None
    return {
        "tables": list(tables.values()),
        "map": map_figure(record.name, record.profile.map, lambda row: int(record.labels[row]), record.class_name),
    }
