"""What embeddings retrieve wrongly, as tables: classes, queries, confused classes, hubs, closest pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from equimetric.report.metric_cells import metric_column, value_cell
from equimetric.report.retrieval_data import retrieval_faults
from equimetric.report.table_data import PlainTable, TableColumn, TableRow, number_cell, text_cell
from equimetric.studies.embeddings_record import EmbeddingsRecord
from equimetric.studies.profiles import MethodProfile, StudyImages

__all__ = ["fault_tables"]


def fault_tables(record: EmbeddingsRecord) -> dict[str, PlainTable]:
    """The tables by the name of their files; those without rows are left out."""
    if not record.per_query or record.profile is None:
        return {}
    images = class_images(record)
    faults = retrieval_faults(MethodProfile(0, record.profile, record.per_query), images)
    if faults is None:
        return {}
    tables = {
        "worst-classes": worst_class_table(faults, images),
        "worst-queries": worst_query_table(faults, images),
        "confused-classes": confused_class_table(faults, images),
        "hubs": hub_table(faults, images),
        "closest-pairs": closest_pair_table(faults, images),
    }
    return {name: table for name, table in tables.items() if table.rows}


def class_images(record: EmbeddingsRecord) -> StudyImages:
    """The items with their classes; a file has no images."""
    names = tuple(record.class_name(label) for label in range(int(record.labels.max()) + 1))
    return StudyImages(np.asarray(record.labels), names, None)


def format_item(row: int, images: StudyImages) -> str:
    """'17 (class 3)'."""
    return f"{row} ({images.class_name(row)})"


def format_neighbours(neighbours: Sequence[tuple[int, bool]], images: StudyImages) -> str:
    """'✗ 12 (class 1), ✓ 40 (class 3)', nearest first."""
    return ", ".join(f"{'✓' if right else '✗'} {format_item(row, images)}" for row, right in neighbours)


def worst_class_table(faults: Mapping[str, Any], images: StudyImages) -> PlainTable:
    """The classes that are retrieved worst."""
    score = faults["score"]
    rows = [
        TableRow(
            (
                text_cell("class", images.class_name(one["query"])),
                number_cell("items", one["images"]),
                value_cell("mean", score, one["mean"]),
            )
        )
        for one in faults["classes"]
    ]
    columns = (TableColumn("class", is_text=True), TableColumn("items"), metric_column(score, f"mean {score}"))
    return PlainTable("Classes that are retrieved worst", columns, tuple(rows))


def worst_query_table(faults: Mapping[str, Any], images: StudyImages) -> PlainTable:
    """The queries that are answered worst, with what is nearest to them."""
    score = faults["score"]
    rows = [
        TableRow(
            (
                text_cell("query", format_item(one["query"], images)),
                value_cell("score", score, one["score"]),
                text_cell("nearest", format_neighbours(one["neighbours"], images)),
            )
        )
        for one in faults["queries"]
    ]
    columns = (
        TableColumn("query", is_text=True),
        metric_column(score),
        TableColumn("nearest", is_text=True, wraps=True),
    )
    return PlainTable("Queries that are answered worst", columns, tuple(rows))


def confused_class_table(faults: Mapping[str, Any], images: StudyImages) -> PlainTable:
    """Pairs of classes whose items are most often nearest to one another."""
    rows = []
    for one in faults["confused"]:
        first, second = sorted(images.class_name(row) for row in one["images"])
        example = " and ".join(format_item(row, images) for row in one["images"])
        cells = (
            text_cell("class", first),
            text_cell("other_class", second),
            number_cell("queries", one["times"]),
            text_cell("example", example),
        )
        rows.append(TableRow(cells))
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
        TableRow(
            (
                text_cell("item", format_item(one["image"], images)),
                number_cell("queries", one["times"]),
                number_cell("other_classes", one["wrong"]),
            )
        )
        for one in faults["hubs"]
    ]
    columns = (TableColumn("item", is_text=True), TableColumn("queries"), TableColumn("of other classes"))
    note = "Hubs: items that are among the ten nearest of the most queries, and of how many queries of other classes."
    return PlainTable("Items that turn up everywhere", columns, tuple(rows), (note,))


def closest_pair_table(faults: Mapping[str, Any], images: StudyImages) -> PlainTable:
    """Pairs of two classes that lie closest together."""
    rows = []
    for one in faults["duplicates"]:
        first, second = (format_item(row, images) for row in one["images"])
        cells = (text_cell("item", first), text_cell("other_item", second), number_cell("distance", one["distance"], 4))
        rows.append(TableRow(cells))
    columns = (
        *(TableColumn(name, is_text=True) for name in ("item", "and item")),
        TableColumn("distance"),
    )
    note = "Euclidean distance of unit vectors. Close to 0: likely one item with two labels."
    return PlainTable("Items of two classes that lie closest together", columns, tuple(rows), (note,))
