"""What embeddings retrieve wrongly, in words because a file has no images: classes, queries, pairs, hubs; and a map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from equimetric.report.map_figure import map_figure
from equimetric.report.metric_cells import metric_column, metric_text
from equimetric.report.retrieval_data import retrieval_faults
from equimetric.report.section import section
from equimetric.report.table_data import PlainTable, TableCell, TableColumn, TableRow, format_number
from equimetric.studies.embeddings_record import EmbeddingsRecord
from equimetric.studies.profiles import MethodProfile, StudyImages

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
    if not record.per_query or record.profile is None:
        return None
    names = tuple(record.class_name(label) for label in range(int(record.labels.max()) + 1))
    images = StudyImages(np.asarray(record.labels), names, None)
    faults = retrieval_faults(MethodProfile(0, record.profile, record.per_query), images)
    if faults is None:
        return None
    tables = (
        class_table(faults, images),
        query_table(faults, images),
        confused_table(faults, images),
        hub_table(faults, images),
        duplicate_table(faults, images),
    )
    return {
        "tables": [table for table in tables if table.rows],
        "map": map_figure(record.name, record.profile.map, lambda row: int(images.labels[row]), record.class_name),
    }


def item(row: int, images: StudyImages) -> str:
    """'17 (class 3)'."""
    return f"{row} ({images.class_name(row)})"


def words(*texts: str) -> tuple[TableCell, ...]:
    """Cells of text."""
    return tuple(TableCell(text, {}) for text in texts)


def neighbours(query: Mapping[str, Any], images: StudyImages) -> str:
    """'✗ 12 (class 1), ✓ 40 (class 3)', nearest first."""
    return ", ".join(f"{'✓' if right else '✗'} {item(row, images)}" for row, right in query["neighbours"])


def class_table(faults: Mapping[str, Any], images: StudyImages) -> PlainTable:
    """The classes that are retrieved worst."""
    score = faults["score"]
    rows = [
        TableRow(words(images.class_name(one["query"]), f"{one['images']:,}", metric_text(score, one["mean"])))
        for one in faults["classes"]
    ]
    columns = (TableColumn("class", is_text=True), TableColumn("items"), metric_column(score, f"mean {score}"))
    return PlainTable("Classes that are retrieved worst", columns, tuple(rows))


def query_table(faults: Mapping[str, Any], images: StudyImages) -> PlainTable:
    """The queries that are answered worst, with what is nearest to them."""
    score = faults["score"]
    rows = [
        TableRow(words(item(one["query"], images), metric_text(score, one["score"]), neighbours(one, images)))
        for one in faults["queries"]
    ]
    columns = (
        TableColumn("query", is_text=True),
        metric_column(score),
        TableColumn("nearest", is_text=True, wraps=True),
    )
    return PlainTable("Queries that are answered worst", columns, tuple(rows))


def confused_table(faults: Mapping[str, Any], images: StudyImages) -> PlainTable:
    """Pairs of classes whose items are most often nearest to one another."""
    rows = [
        TableRow(
            words(
                *sorted(images.class_name(row) for row in one["images"]),
                f"{one['times']:,}",
                " and ".join(item(row, images) for row in one["images"]),
            )
        )
        for one in faults["confused"]
    ]
    columns = (
        *(TableColumn(name, is_text=True) for name in ("class", "and class")),
        TableColumn("queries"),
        TableColumn("such as", is_text=True),
    )
    note = "Queries of one class whose nearest item is of the other."
    return PlainTable("Classes that are taken for one another", columns, tuple(rows), (note,))


def hub_table(faults: Mapping[str, Any], images: StudyImages) -> PlainTable:
    """Items that are among the nearest of the most queries."""
    rows = [
        TableRow(words(item(one["image"], images), f"{one['times']:,}", f"{one['wrong']:,}")) for one in faults["hubs"]
    ]
    columns = (TableColumn("item", is_text=True), TableColumn("queries"), TableColumn("of other classes"))
    note = "Hubs: items that are among the ten nearest of the most queries, and of how many queries of other classes."
    return PlainTable("Items that turn up everywhere", columns, tuple(rows), (note,))


def duplicate_table(faults: Mapping[str, Any], images: StudyImages) -> PlainTable:
    """Pairs of two classes that lie closest together."""
    rows = [
        TableRow(words(*(item(row, images) for row in one["images"]), format_number(one["distance"], 4)))
        for one in faults["duplicates"]
    ]
    columns = (
        *(TableColumn(name, is_text=True) for name in ("item", "and item")),
        TableColumn("distance"),
    )
    note = "Euclidean distance of unit vectors. Close to 0: likely one item with two labels."
    return PlainTable("Items of two classes that lie closest together", columns, tuple(rows), (note,))
