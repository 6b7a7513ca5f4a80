"""The commands that measure embeddings again."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from equimetric.report.section import section
from equimetric.studies.embeddings_record import EmbeddingsRecord

__all__ = ["embeddings_reproduce_section"]

TEMPLATE = """
<p class="lead">In the folder of the file, with Equimetric {{ version }}:</p>
<pre tabindex="0" aria-label="Commands">{% for command in record.commands %}
{{ command }}
{% endfor %}</pre>
"""


@section(
    "embeddings_reproduce",
    title="Reproduce it",
    link="Reproduce",
    order=95,
    template=TEMPLATE,
    record_types=(EmbeddingsRecord,),
)
def embeddings_reproduce_section(record: EmbeddingsRecord) -> Mapping[str, Any] | None:
    """The version; None where no command is known."""
    return {"version": version("equimetric")} if record.commands else None
