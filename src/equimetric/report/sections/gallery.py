"""Queries with their nearest neighbours, one gallery per method."""

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from equimetric.report.page_budget import image_byte_budget
from equimetric.report.section import section
from equimetric.studies.records import GalleryRow, Image, StudyRecord
from equimetric.studies.table import comparison_table

__all__ = ["gallery_section"]

# Images are shown at 52 pixels at most; half as much again is enough for dense screens and keeps the page small.
_MAX_SIDE = 80

# Images up to this side are enlarged with visible pixels.
_MAX_PIXELATED_SIDE = 64

UNFOLDED = 6
"""Methods whose galleries are open; a click unfolds the others."""

TEMPLATE = """
{% macro picture(image, description) %}
<img src="{{ image.source }}" alt="{{ description }}" title="{{ description }}" width="46" height="46"
{%- if image.enlarged %} class="enlarged"{% endif %}>
{%- endmacro %}
<p class="lead">The query is on the left; its neighbours follow, nearest first.</p>
<p class="keys"><span class="key right"><span class="mark">✓</span> same class</span> <span class="key wrong"><span class="mark">✗</span> another class, with its name</span></p>
<div class="galleries">
{% for gallery in galleries %}
  {% if loop.index0 == unfolded %}
</div>
<details><summary>{{ galleries | length - unfolded }} more methods</summary>
<div class="galleries">
  {% endif %}
  <article>
    <h3><span class="name">{{ gallery.method | breakable }}</span>
      {%- if gallery.kind == "baseline" %} <span class="badge">baseline</span>{% endif -%}
    </h3>
    {% for query in gallery.queries %}
    <p class="query-name">{{ query.name }}</p>
    <div class="retrieval">
      <div class="query">{{ picture(query.image, "query: " ~ query.name) }}</div>
      <ol>
        {% for neighbour in query.neighbours %}
        {% set relation = "same class" if neighbour.correct else "another class" %}
        <li class="{{ 'right' if neighbour.correct else 'wrong' }}">
          {{ picture(neighbour.image, "neighbour " ~ loop.index ~ ": " ~ neighbour.name ~ ", " ~ relation) }}
          <span class="mark" aria-hidden="true">{{ "✓" if neighbour.correct else "✗" }}</span>
          {% if not neighbour.correct %}
          <span class="caption" aria-hidden="true">{{ neighbour.name }}</span>
          {% endif %}
        </li>
        {% endfor %}
      </ol>
    </div>
    {% endfor %}
  </article>
{% endfor %}
</div>
{% if galleries | length > unfolded %}</details>{% endif %}
{% if without %}<ul class="notes"><li>Left out, to keep the page small: {{ without | join(", ") }}.</li></ul>{% endif %}
"""  # noqa: E501


@section("gallery", title="Retrieval gallery", link="Gallery", order=50, template=TEMPLATE)
def gallery_section(study: StudyRecord) -> Mapping[str, Any] | None:
    """The galleries that fit the page, the best method first and baselines last; None where the study has none."""
    best_first = sorted(comparison_table(study).rows, key=lambda row: row.kind == "baseline")
    galleries: list[dict[str, Any]] = []
    without: list[str] = []
    byte_budget = image_byte_budget(study, "gallery")
    for row in best_first:
        if row.method not in study.galleries:
            continue
        queries = list(map(query, study.galleries[row.method]))
        byte_budget -= sum(map(size_of, queries))
        if byte_budget >= 0 or not galleries:
            galleries.append({"method": row.method, "kind": row.kind, "queries": queries})
        else:
            without.append(row.method)
    # One method behind a click would save no room.
    unfolded = len(galleries) if len(galleries) <= UNFOLDED + 1 else UNFOLDED
    return {"galleries": galleries, "unfolded": unfolded, "without": without} if galleries else None


def size_of(query: Mapping[str, Any]) -> int:
    """Bytes of a query's images."""
    return sum(len(one["image"]["source"]) for one in (query, *query["neighbours"]))


def query(row: GalleryRow) -> dict[str, Any]:
    """A query and its neighbours, with images the page can show."""
    neighbours = [
        {"image": picture(image), "name": name, "correct": correct} for image, name, correct in row.neighbours
    ]
    return {"image": picture(row.query), "name": row.query_name, "neighbours": neighbours}


def picture(image: Image) -> dict[str, Any]:
    """An image of shape (C, H, W) inline, and whether its pixels stay visible when it is enlarged."""
    return {"source": data_uri(image), "enlarged": max(image.shape[1:]) <= _MAX_PIXELATED_SIDE}


def data_uri(image: Image) -> str:
    """An image of shape (C, H, W), scaled down to twice the size shown: a photograph as an inline JPEG, else a PNG."""
    from PIL import Image as Pillow

    pixels = Pillow.fromarray(np.ascontiguousarray(image[0] if image.shape[0] == 1 else image.transpose(1, 2, 0)))
    pixels.thumbnail((_MAX_SIDE, _MAX_SIDE), Pillow.Resampling.LANCZOS)
    stream = io.BytesIO()
    # A study shows a thousand photographs, which are a fifth of the size as JPEG.
    kind = "jpeg" if image.shape[0] == 3 and max(image.shape[1:]) > _MAX_PIXELATED_SIDE else "png"
    pixels.save(stream, format=kind, optimize=True, **({"quality": 76} if kind == "jpeg" else {}))
    return f"data:image/{kind};base64," + base64.b64encode(stream.getvalue()).decode("ascii")
