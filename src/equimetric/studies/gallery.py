"""Retrieval examples: the same few queries for every row of a study's table, with its neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equimetric.data import Dataset
from equimetric.errors import DamagedFileError
from equimetric.runs.folder import RunFolder
from equimetric.seeding import derive_seed
from equimetric.studies.records import GalleryRow

__all__ = ["galleries"]

GALLERY_QUERIES = 6
GALLERY_NEIGHBOURS = 8


def galleries(name: str, runs: Iterable[tuple[str, Path]], dataset: Dataset) -> dict[str, tuple[GalleryRow, ...]]:
    """The same few queries for every row of a study's table, with the neighbours that its first run retrieves.

    `runs` are rows with the folders of their finished runs.
    """
    rows: dict[str, tuple[GalleryRow, ...]] = {}
    for row, folder in runs:
        run = RunFolder(folder)
        if row not in rows and run.has_per_query():
            # A damaged run is reported elsewhere.
            with suppress(DamagedFileError):
                rows[row] = gallery(run.per_query(), dataset, derive_seed(name, "gallery"))
    return rows


def gallery(per_query: dict[str, np.ndarray[Any, Any]], dataset: Dataset, seed: int) -> tuple[GalleryRow, ...]:
    """A few random queries of distinct classes, with their nearest neighbours."""
    order = torch.randperm(len(per_query["index"]), generator=torch.Generator().manual_seed(seed)).tolist()
    labels = per_query["labels"]
    queries: list[int] = []
    for query in order:
        if labels[query] not in labels[queries] and len(queries) < GALLERY_QUERIES:
            queries.append(query)

    def name(index: int) -> str:
        return dataset.class_names[int(dataset.labels[index])]

    return tuple(
        GalleryRow(
            query=dataset.images[int(per_query["index"][query])].numpy(),
            query_name=name(int(per_query["index"][query])),
            neighbours=tuple(
                (dataset.images[int(n)].numpy(), name(int(n)), bool(dataset.labels[int(n)] == labels[query]))
                for n in per_query["neighbours"][query][:GALLERY_NEIGHBOURS]
                if n >= 0
            ),
        )
        for query in queries
    )
