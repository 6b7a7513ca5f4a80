"""Pictures of ideas behind the methods, most of them the same in every report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equimetric.report.figure import Figure
from equimetric.report.section import section
from equimetric.report.understanding_figures import (
    mining_figure,
    pads_figure,
    plane_figures,
    selection_figure,
    sphere_figure,
)
from equimetric.studies.records import StudyRecord

__all__ = ["understand_section"]

TEMPLATE = """
<details>
<summary>Distances on the sphere, what selections take from them, digits in a plane, valid-triplet mining</summary>
<div class="panels">
  <article><h3>Distances on the sphere</h3>{{ sphere | chart }}</article>
  <article><h3>What a selection takes</h3>{{ taken | chart }}</article>
  {% for figure in planes %}
  <article><h3>Equal accuracy, {{ "unequal" if loop.index > 1 else "equal" }} spread</h3>{{ figure | chart }}</article>
  {% endfor %}
  <article><h3>Valid triplets</h3>{{ mining | chart }}</article>
</div>
</details>
{% for figure in pads %}
{{ figure | chart }}
{% endfor %}
"""


@section("understand", title="Understand", link="Understand", order=56, template=TEMPLATE)
def understand_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """The pictures, and the distribution of every method with PADS; None where nothing was trained by a recipe."""
    if not study.recipes:
        return None
    pads: list[Figure] = []
    for row in study.recipes:
        for run in study.runs_of(row, "done")[:1]:
            figure = pads_figure(row, run.history, len(pads))
            pads += [] if figure is None else [figure]
    return {
        "sphere": sphere_figure(),
        "taken": selection_figure(),
        "planes": plane_figures(),
        "mining": mining_figure(),
        "pads": pads,
    }
