"""Data that the first run of every row has stored beside its scores, for the detailed sections of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.data import Dataset
from equimetric.errors import DamagedFileError
from equimetric.runs.folder import RunFolder
from equimetric.runs.profile import RunProfile

__all__ = ["MethodProfile", "StudyImages", "load_profiles", "study_images"]


@dataclass(frozen=True, eq=False)
class MethodProfile:
    """Stored details of one run of a row.

    Attributes:
        seed: seed of the run.
        run: thresholds, map and distances of nearest neighbours; empty where the run has stored none.
        per_query: `index`, `labels`, `neighbours` and scores of every test query, in rows of the data set.
    """

    seed: int
    run: RunProfile = field(default_factory=RunProfile)
    per_query: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class StudyImages:
    """The data set of a study: class ids of its rows, class names by id, and the images; None where none is shown."""

    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    dataset: Dataset | None

    def image(self, row: int) -> NDArray[np.uint8]:
        """(C, H, W) one image."""
        assert self.dataset is not None
        return np.asarray(self.dataset.images[row].numpy())

    def class_name(self, row: int) -> str:
        """The name of the class of a row."""
        return self.class_names[int(self.labels[row])]


def study_images(dataset: Dataset) -> StudyImages:
    """The images of a data set by row."""
    return StudyImages(dataset.labels.numpy(), tuple(dataset.class_names), dataset)


def load_profiles(runs: Iterable[tuple[str, int, Path]]) -> dict[str, MethodProfile]:
    """Row → what its first run has stored; `runs` are rows, seeds and folders of finished runs.

    The first run of a row with a profile counts; without one, the first with scores of queries.
    """
    profiles: dict[str, MethodProfile] = {}
    for row, seed, folder in runs:
        run = RunFolder(folder)
        # A damaged run is reported elsewhere.
        with suppress(DamagedFileError):
            arrays = run.profile()
            if arrays is not None and (row not in profiles or profiles[row].run.is_empty):
                per_query = run.per_query() if run.has_per_query() else {}
                profiles[row] = MethodProfile(seed, RunProfile.from_arrays(arrays), per_query)
            elif row not in profiles and run.has_per_query():
                profiles[row] = MethodProfile(seed, per_query=run.per_query())
    return profiles
