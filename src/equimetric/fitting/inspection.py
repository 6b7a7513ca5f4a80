"""Inspect a folder or a list of images: classes, images of each, damaged files, near-duplicates."""

from __future__ import annotations

import os
import statistics
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from equimetric.data import Dataset, NearDuplicate, list_first, near_duplicates
from equimetric.data.manifest import UnknownColumnError, read_columns
from equimetric.errors import EquimetricError, quote
from equimetric.escaping import name_text
from equimetric.files import IS_FOLDER, unreadable_reason
from equimetric.runs.configuration import DataConfig, ModelConfig
from equimetric.runs.data import load_data_set
from equimetric.runs.image_size import warn_if_enlarged

__all__ = ["Inspection", "inspect_data", "read_source"]

PATH_COLUMNS = ("path", "file", "image")
LABEL_COLUMNS = ("label", "class", "class_name")
"""Names of columns that a list of images is searched for."""

NAMES_SHOWN, COLUMNS_SHOWN = 3, 12

MIN_IMAGES_PER_CLASS = 2
"""A query needs another image of its class."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """A data set and the findings on it.

    Attributes:
        config: the configuration that loads it.
        dataset: the data set without damaged files and classes of a single image.
        images: class name → number of images.
        near_duplicates: images that resemble another one, `parts` being their classes.
        notes: further notes for the user: small files.
    """

    config: DataConfig
    dataset: Dataset
    images: dict[str, int]
    near_duplicates: tuple[NearDuplicate, ...]
    notes: tuple[str, ...]

    @property
    def across(self) -> list[NearDuplicate]:
        """Images that resemble one of another class."""
        return [pair for pair in self.near_duplicates if pair.parts[0] != pair.parts[1]]

    def classes_together(self) -> list[list[str]]:
        """Groups of classes that share nearly equal images; each class is in one group, most are alone in theirs."""
        group_of = {name: {name} for name in self.images}
        for pair in self.across:
            group_a, group_b = (group_of[name] for name in pair.parts)
            if group_a is not group_b:
                group_a |= group_b
                for name in group_b:
                    group_of[name] = group_a
        groups = {id(group): sorted(group) for group in group_of.values()}
        return sorted(groups.values())

    def describe(self) -> Iterator[str]:
        """One line for each finding."""
        dataset, counts = self.dataset, sorted(self.images.values())
        yield (
            f"{len(dataset):,} images of {len(counts):,} classes; {counts[0]:,} to {counts[-1]:,} in a class, median "
            f"{statistics.median(counts):g}"
        )
        if dataset.unreadable:
            yield f"damaged files, left out: {len(dataset.unreadable):,}, {self._names(dataset.unreadable)}"
        if dataset.skipped:
            yield f"files that are not read, left out: {len(dataset.skipped):,}, {self._names(dataset.skipped)}"
        if dataset.small_classes:
            small = list(dataset.small_classes)
            yield f"classes of one image or none, left out: {len(small):,}, {self._names(small)}"
        yield from self._describe_duplicates()
        yield from self.notes

    def _names(self, names: Sequence[str]) -> str:
        """The first few, paths relative to the folder of the images."""
        options = self.config.options
        root = Path(str(options["root"])) if "root" in options else Path(str(options["file"])).parent
        return list_first([text.removeprefix(f"{root}{os.sep}") for text in names], NAMES_SHOWN)

    def _describe_duplicates(self) -> Iterator[str]:
        across, exact = self.across, sum(pair.exact for pair in self.near_duplicates)
        if not self.near_duplicates:
            yield "no image occurs twice"
            return
        inside = len(self.near_duplicates) - len(across)
        yield (
            f"pairs of nearly equal images: {len(self.near_duplicates):,}, {exact:,} of them equal; {inside:,} "
            f"inside a class, {len(across):,} in two classes"
        )
        if across:
            names_text = list_first([" ~ ".join(pair.names(self.dataset)) for pair in across], NAMES_SHOWN)
            yield f"classes that share images stay in one part, so that nothing leaks: {names_text}"


def inspect_data(data: DataConfig, model: ModelConfig) -> Inspection:
    """Load a data set and inspect all of its images once."""
    with warnings.catch_warnings():
        # The data set lists what is left out.
        warnings.simplefilter("ignore")
        dataset = load_data_set(data)
    if len(dataset.images.shape) != 4:
        raise EquimetricError("these data are feature vectors; fit starts from images")
    counts = torch.bincount(dataset.labels, minlength=dataset.classes).tolist()
    images = dict(zip(dataset.class_names, counts, strict=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_if_enlarged(dataset, data, model)
    notes = tuple(str(warning.message) for warning in caught)
    return Inspection(data, dataset, images, tuple(near_duplicates(dataset)), notes)


def read_source(source: Path, *, path: str | None = None, label: str | None = None) -> dict[str, Any]:
    """The name and options of the data set behind a folder of classes, or a .csv or .parquet list of images.

    path, label   the columns of a list; by default the first of the usual names that it has
    """
    options = {"damaged": "skip", "min_images": MIN_IMAGES_PER_CLASS}
    if unreadable_reason(source) == IS_FOLDER:
        if path is not None or label is not None:
            raise EquimetricError("a folder has no columns; leave them out, or give a .csv or .parquet list of images")
        return {"name": "folder", "options": {"root": str(source), **options}}
    if not source.exists():
        raise EquimetricError(f"there is no folder and no list of images {quote(str(source))}; check the path")
    if source.suffix not in (".csv", ".parquet"):
        raise EquimetricError(
            f"{name_text(str(source))} is no folder with one folder per class, and no .csv or .parquet list of images"
        )
    columns = {
        "path": path or find_column(source, PATH_COLUMNS, "--path"),
        "label": label or find_column(source, LABEL_COLUMNS, "--label"),
    }
    return {"name": "manifest", "options": {"file": str(source), **columns, **options}}


def find_column(file: Path, names: tuple[str, ...], option: str) -> str:
    """The first of some names that a list has as a column; where it has none, `option` must name one."""
    for name in names:
        try:
            read_columns(file, required=(name,))
        except UnknownColumnError as error:
            columns = error.columns
        else:
            return name
    raise EquimetricError(
        f"{name_text(str(file))} has no column {', '.join(names[:-1])} or {names[-1]}; name one of its columns by "
        f"{option}: {list_first(columns, COLUMNS_SHOWN)}"
    )
