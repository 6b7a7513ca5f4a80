"""Scores and neighbours of single test queries by row, read from the folders of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import DamagedFileError
from equimetric.runs.folder import RunFolder
from equimetric.studies.profiles import StudyImages

__all__ = ["Image", "QueryComparison", "compare_queries"]

Image: TypeAlias = NDArray[np.uint8]
"""An image of shape (C, H, W) with C = 1 (grey) or C = 3 (RGB)."""


@dataclass(frozen=True, eq=False)
class QueryComparison:
    """One score for each test query and row, the mean over the row's runs; and what its first run retrieves.

    Attributes:
        metric: name of the score.
        index: (Q,) rows of the data set.
        class_names: (Q,) of the queries.
        scores: row → (Q,).
        neighbours: row → (Q, K) rows of the data set, nearest first, −1 for none.
        runs: minimum number of runs per row behind the means.
        images: labels, class names and images of the data set, where it is at hand.
    """

    metric: str
    index: NDArray[np.int64]
    class_names: tuple[str, ...]
    scores: Mapping[str, NDArray[np.float64]]
    neighbours: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    runs: int = 1
    images: StudyImages | None = None


def compare_queries(
    metric: str, runs: Iterable[tuple[str, Path]], images: StudyImages | None
) -> QueryComparison | None:
    """The scores of the queries that all runs have in common; None where fewer than two rows have kept any.

    `runs` are rows with the folders of their finished runs.
    """
    values_by_row: dict[str, list[NDArray[np.float64]]] = {}
    neighbours: dict[str, NDArray[np.int64]] = {}
    index: NDArray[np.int64] | None = None
    labels = np.empty(0, np.int64)
    for row, folder in runs:
        run = RunFolder(folder)
        # A damaged run is reported elsewhere.
        with suppress(DamagedFileError):
            arrays = run.per_query() if run.has_per_query() else {}
            if metric not in arrays:
                continue
            if index is None:
                index, labels = arrays["index"].astype(np.int64), arrays["labels"]
            if np.array_equal(arrays["index"], index):
                values_by_row.setdefault(row, []).append(arrays[metric].astype(np.float64))
                neighbours.setdefault(row, arrays["neighbours"].astype(np.int64))
    if index is None or len(values_by_row) < 2:
        return None
    names = tuple(str(label) if images is None else images.class_names[int(label)] for label in labels)
    scores = {row: np.mean(values, axis=0) for row, values in values_by_row.items()}
    return QueryComparison(metric, index, names, scores, neighbours, min(map(len, values_by_row.values())), images)
