"""Embeddings of many image files in one Parquet file; a killed run resumes where it stopped."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equimetric.checksums import json_document, read_json
from equimetric.data.image_formats import SUFFIXES
from equimetric.deployment.embedder import Embedder
from equimetric.deployment.image_blocks import embed_readable
from equimetric.errors import EquimetricError, did_you_mean, quote
from equimetric.files import make_folder, sync_file, sync_folder
from equimetric.progress import show_progress
from equimetric.runs.access import acquire_lock

__all__ = ["BulkEmbeddings", "ImageList", "PartTables", "embed_files", "list_image_files"]

ROWS_PER_PART = 256
"""Images between two points from which a killed run resumes."""
PLAN, LOCK = "plan.json", ".lock"
PATH, LABEL = "path", "label"
METADATA = "equimetric"
"""Metadata key of the file with the origin of its embeddings."""


@dataclass(frozen=True)
class ImageList:
    """Image files, as they are named in the result, and their labels where these are known."""

    names: tuple[str, ...]
    files: tuple[Path, ...]
    labels: tuple[str, ...] | None = None

    def rows(self, start: int, stop: int) -> ImageList:
        """A range of rows."""
        labels = None if self.labels is None else self.labels[start:stop]
        return ImageList(self.names[start:stop], self.files[start:stop], labels)


PartTables: TypeAlias = Callable[[Embedder, Sequence[ImageList], Callable[[int], None]], Iterator[tuple[int, Any]]]
"""Yields (index, table) for every part, in any order; the last argument is called with the number of images done."""


@dataclass(frozen=True)
class BulkEmbeddings:
    """Result of `embed_files`: the file, numbers of images and of those embedded before, and the unreadable ones."""

    file: Path
    images: int
    resumed: int
    damaged: tuple[str, ...]


def list_image_files(source: str | Path, column: str = PATH) -> ImageList:
    """All images below a folder in sorted order, or the paths in a column of a .csv or .parquet file.

    In a folder with one folder per class the first folder below it is the label; a table has them in a column `label`.
    Paths of a table are relative to its own folder.
    """
    source = Path(source)
    if source.is_dir():
        return list_images_recursively(source)
    if source.suffix.lower() not in (".csv", ".parquet"):
        raise EquimetricError(
            f"{quote(str(source))} is neither a folder nor a table; give images as a folder, .csv or .parquet"
        )
    table = read_columns(source)
    if column not in table:
        raise EquimetricError(
            f"{quote(str(source))} has no column {column!r}; {did_you_mean(column, list(table))}, or give --column"
        )
    names = tuple(map(str, table[column]))
    if not names:
        raise EquimetricError(f"{quote(str(source))} lists no images; give at least one")
    labels = tuple(map(str, table[LABEL])) if LABEL in table else None
    return ImageList(names, tuple(source.parent / name for name in names), labels)


def list_images_recursively(folder: Path) -> ImageList:
    """The image files of a folder and of those below it, hidden ones left out."""
    files = []
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [
            Path(above) / name
            for name in sorted(names)
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")
        ]
    if not files:
        raise EquimetricError(f"there are no images below {quote(str(folder))}; give a folder that holds some")
    relative = [file.relative_to(folder) for file in files]
    labels = tuple(path.parts[0] for path in relative) if all(len(path.parts) > 1 for path in relative) else None
    return ImageList(tuple(path.as_posix() for path in relative), tuple(files), labels)


def read_columns(file: Path) -> dict[str, list[Any]]:
    """The columns of a table."""
    try:
        if file.suffix.lower() == ".parquet":
            columns: dict[str, list[Any]] = import_module("pyarrow.parquet").read_table(file).to_pydict()
            return columns
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            rows = list(reader)
            return {name: [row[name] or "" for row in rows] for name in reader.fieldnames or ()}
    except (OSError, ValueError, csv.Error) as error:
        raise EquimetricError(f"{quote(str(file))} cannot be read as a table ({error}); check the file") from None


def embed_files(
    model: Embedder,
    images: ImageList,
    out: str | Path,
    *,
    rows_per_part: int = ROWS_PER_PART,
    tables: PartTables | None = None,
) -> BulkEmbeddings:
    """Write `path`, `label` where known, `embedding`, and with a cohort `query` and `gallery`, one row per image.

    Parts of the result are kept in a folder beside it until all are there; the same call after a kill computes only
    those that are missing. Files that cannot be read are left out, and named in the result.

    tables  computes the parts, such as `tables_on_ray`; by default in this process
    """
    target = Path(out)
    if target.suffix.lower() != ".parquet":
        raise EquimetricError(f"embeddings are written as Parquet; give a file .parquet, not {target.name!r}")
    if target.exists():
        raise EquimetricError(f"{quote(str(target))} is there already; choose another file, or remove it")
    work = target.with_name(f"{target.name}.parts")
    make_folder(work)
    lock = acquire_lock(work / LOCK)
    try:
        require_plan(work, model, images, rows_per_part)
        lists = [images.rows(start, start + rows_per_part) for start in range(0, len(images.files), rows_per_part)]
        parts = [work / f"{index:06d}.parquet" for index in range(len(lists))]
        missing = [index for index, part in enumerate(parts) if not part.exists()]
        total = len(images.files)
        resumed = total - sum(len(lists[index].files) for index in missing)
        with show_progress("Embedding", total, completed=resumed) as advance:
            missing_lists = [lists[index] for index in missing]
            for position, table in (tables or local_tables)(model, missing_lists, advance) if missing_lists else ():
                write_table(table, parts[missing[position]])
        damaged = join_parts(parts, target)
        for file in (*parts, work / PLAN, work / LOCK):
            file.unlink()
        work.rmdir()
    finally:
        os.close(lock)
    return BulkEmbeddings(target, total, resumed, damaged)


def local_tables(
    model: Embedder, parts: Sequence[ImageList], advance: Callable[[int], None]
) -> Iterator[tuple[int, Any]]:
    """The tables of parts, computed by this process."""
    for index, part in enumerate(parts):
        yield index, part_table(model, part, advance)


def require_plan(work: Path, model: Embedder, images: ImageList, rows_per_part: int) -> None:
    """Raise an error where existing parts belong to another model or list."""
    digest = hashlib.sha256(repr((images.names, images.labels)).encode())
    plan = {**describe_model(model), "images": digest.hexdigest(), "rows_per_part": rows_per_part}
    file = work / PLAN
    if file.exists():
        if read_json(file, dict, f"remove {work}") != plan:
            raise EquimetricError(
                f"{quote(str(work))} holds parts of another model or of other images; remove it, or choose another file"
            )
        return
    file.write_text(json_document(plan, indent=2), encoding="utf-8")
    sync_file(file)


def describe_model(model: Embedder) -> dict[str, str]:
    """The origin of embeddings, as in the certificate."""
    return {
        "model": model.model,
        "preprocessing": model.preprocessing.description,
        "runtime": model.arithmetic,
        "dimension": str(model.dim),
    }


def part_table(model: Embedder, images: ImageList, advance: Callable[[int], None]) -> Any:
    """The rows of a part; an unreadable image has a reason in `damaged` and no embedding."""
    arrow = import_module("pyarrow")
    result = embed_readable(model, images.files, advance)
    columns: dict[str, Any] = {PATH: arrow.array(images.names)}
    if images.labels is not None:
        columns[LABEL] = arrow.array(images.labels)
    for name, rows in result.outputs.items():
        columns[name] = vectors_column(arrow, rows, result.readable, len(result.reasons))
    columns["damaged"] = arrow.array(result.reasons, arrow.string())
    return arrow.table(columns).replace_schema_metadata({METADATA: json.dumps(describe_model(model))})


def vectors_column(arrow: Any, rows: NDArray[np.float32], readable: NDArray[np.int64], total: int) -> Any:
    """(M, D) vectors as lists of fixed length, null in the rows that could not be read."""
    padded = np.zeros((total, rows.shape[1]), np.float32)
    padded[readable] = rows
    missing = np.ones(total, bool)
    missing[readable] = False
    values = arrow.array(padded.ravel())
    return arrow.FixedSizeListArray.from_arrays(values, rows.shape[1], mask=arrow.array(missing))


def write_table(table: Any, file: Path) -> None:
    """Write a Parquet file atomically."""
    unfinished = file.with_name(f".{file.name}.unfinished")
    import_module("pyarrow.parquet").write_table(table, unfinished)
    sync_file(unfinished)
    unfinished.replace(file)
    sync_folder(file.parent)


def join_parts(parts: Sequence[Path], target: Path) -> tuple[str, ...]:
    """Write the readable rows of all parts to one file, a part in memory at a time; returns the others with reasons."""
    parquet, damaged = import_module("pyarrow.parquet"), []
    unfinished = target.with_name(f".{target.name}.unfinished")
    writer = None
    try:
        for part in parts:
            table = parquet.read_table(part)
            reasons = table["damaged"].to_pylist()
            damaged += [
                f"{name} ({reason})"
                for name, reason in zip(table[PATH].to_pylist(), reasons, strict=True)
                if reason is not None
            ]
            table = table.filter(table["damaged"].is_null()).drop_columns(["damaged"])
            if table.num_rows:
                writer = writer or parquet.ParquetWriter(unfinished, table.schema)
                writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise EquimetricError(f"none of the {len(damaged)} images can be read, such as {damaged[0]}; check the files")
    sync_file(unfinished)
    unfinished.replace(target)
    sync_folder(target.parent)
    return tuple(damaged)
