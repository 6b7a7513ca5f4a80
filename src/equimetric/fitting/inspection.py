"""What a folder or a list of images holds: classes, images of each, damaged files, images that occur twice."""

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
"""Images of a class: one alone has nothing to be found by."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """A data set and what was found in it.

    Attributes:
        config: how it is loaded.
        dataset: without damaged files, and without classes of a single image.
        images: how many images each class has, by name.
        alike: images that resemble another one, `parts` being their classes.
        notes: what else a user should know: small files.
    """

    config: DataConfig
    dataset: Dataset
    images: dict[str, int]
    alike: tuple[NearDuplicate, ...]
    notes: tuple[str, ...]

    @property
    def across(self) -> list[NearDuplicate]:
        """Images that resemble one of another class."""
        return [pair for pair in self.alike if pair.parts[0] != pair.parts[1]]

    def classes_together(self) -> list[list[str]]:
        """The classes in groups that share nearly equal images, each class in one group; most stand alone."""
        group_of = {name: {name} for name in self.images}
        for pair in self.across:
            one, other = (group_of[name] for name in pair.parts)
            if one is not other:
                one |= other
                for name in other:
                    group_of[name] = one
        groups = {id(group): sorted(group) for group in group_of.values()}
        return sorted(groups.values())

    def describe(self) -> Iterator[str]:
        """One line for each thing found."""
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
        yield from self._describe_alike()
        yield from self.notes

    def _names(self, found: Sequence[str]) -> str:
        """The first few, paths relative to the folder of the images."""
        options = self.config.options
        root = Path(str(options["root"])) if "root" in options else Path(str(options["file"])).parent
        return list_first([text.removeprefix(f"{root}{os.sep}") for text in found], NAMES_SHOWN)

    def _describe_alike(self) -> Iterator[str]:
        across, exact = self.across, sum(pair.exact for pair in self.alike)
        if not self.alike:
            yield "no image occurs twice"
            return
        inside = len(self.alike) - len(across)
        yield (
            f"pairs of nearly equal images: {len(self.alike):,}, {exact:,} of them equal; {inside:,} inside a class, "
            f"{len(across):,} in two classes"
        )
        if across:
            shown = list_first([" ~ ".join(pair.names(self.dataset)) for pair in across], NAMES_SHOWN)
            yield f"classes that share images stay in one part, so that nothing leaks: {shown}"


def inspect_data(data: DataConfig, model: ModelConfig) -> Inspection:
    """Load a data set and look at all of its images once."""
    with warnings.catch_warnings():
        # What is left out is in the data set.
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
