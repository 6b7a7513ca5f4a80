"""Images listed in a table: path and label per row, optionally part, query or gallery mark, and bounding box."""

import csv
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from equimetric.data.dataset import PARTS, Dataset
from equimetric.data.decoding import Box, Decoding
from equimetric.data.exclusions import Damaged
from equimetric.data.file_list import FileList, first_outside
from equimetric.data.file_store import CacheKind
from equimetric.data.registry import InputSize, dataset
from equimetric.errors import EquimetricError, did_you_mean, quote, unknown_name
from equimetric.files import require_file

__all__ = ["UnknownColumnError", "load_manifest", "parse_part", "read_columns"]

BOX_COLUMNS = ("x", "y", "w", "h")
OTHER_NAMES = {"val": "validation", "valid": "validation", "background": "train", "evaluation": "test"}


@dataset("manifest")
def load_manifest(
    *,
    file: str | Path,
    root: str | Path | None = None,
    path: str = "path",
    label: str = "label",
    split: str = "split",
    mark: str = "set",
    superclass: str | Sequence[str] | None = None,
    weights: str | None = None,
    outside_root: bool = False,
    size: InputSize = 224,
    channels: int = 3,
    damaged: Damaged = "refuse",
    min_images: int = 1,
    in_memory: bool = False,
    cache: CacheKind = "none",
    decoding: Decoding = "exact",
) -> Dataset:
    """Images listed in a .csv or .parquet file: a path and a label per row.

    `path`, `label`, `split` and `mark` name the columns. Paths are relative to `root`, by default the file's folder.
    A path that leads out of `root`, absolute or by '..', raises an error unless `outside_root` allows it; links inside
    `root` are followed. Optional columns: `split` (train, validation, test), `set` (query or gallery, for test images),
    and the bounding box x, y, w, h in pixels of the upright image; an empty box means the whole image.
    `superclass` names a column, or several, that become class attributes of these names, `weights` one that becomes a
    sample attribute (`data.weights` of a run). Labels that are all whole numbers are ordered by value, others as text.
    With `in_memory` all images are decoded once, at the start: right for small ones that are used many times.
    """
    file = Path(file).expanduser()
    superclasses = _names(superclass)
    weight_columns = () if weights is None else (weights,)
    columns = read_columns(
        file, required=(path, label, *superclasses, *weight_columns), optional=(split, mark, *BOX_COLUMNS)
    )
    base = file.parent if root is None else Path(root).expanduser()
    labels = columns[label]
    for row, value in enumerate(labels, start=1):
        if not value:
            raise EquimetricError(f"row {row} of {str(file)!r} has no {label!r}; give every image a label")
    file_list = FileList(
        name=file.stem,
        root=base,
        files=_files(columns[path], base, file, outside_root=outside_root),
        classes=labels,
        class_order=_sort_labels(set(labels)),
        parts=_parts(columns.get(split), columns.get(mark), file),
        boxes=_boxes(columns, file),
        class_attributes={name: _superclass_of(labels, columns[name], file) for name in superclasses},
        sample_attributes={name: columns[name] for name in weight_columns},
    )
    return file_list.dataset(
        size=size,
        channels=channels,
        damaged=damaged,
        min_images=min_images,
        cache=cache,
        decoding=decoding,
        in_memory=in_memory,
    )


def _names(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns of an option that takes one, several or none."""
    names = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if not isinstance(name, str):
            raise EquimetricError(f"superclass names a column, or a list of columns, not {quote(name)}")
    return tuple(dict.fromkeys(names))


def _files(names: Sequence[str], root: Path, file: Path, *, outside_root: bool) -> list[Path]:
    if "" in names:
        raise EquimetricError(f"row {names.index('') + 1} of {str(file)!r} has no path; name an image in every row")
    files = [root / name for name in names]
    outside = None if outside_root else first_outside(root, files)
    if outside is not None:
        raise EquimetricError(
            f"row {outside + 1} of {str(file)!r} leads out of {quote(str(root))}: {quote(names[outside])}; give the "
            "folder that holds all images as root, or set outside_root = true if you trust the list"
        )
    return files


class UnknownColumnError(EquimetricError):
    """A list lacks a required column.

    Attributes:
        columns: those that it has.
    """

    def __init__(self, message: str, columns: Sequence[str]) -> None:
        super().__init__(message)
        self.columns = columns


def read_columns(file: Path, *, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, list[str]]:
    """The columns that a .csv or .parquet file has, as text; an empty cell is ''."""
    require_file(file, "give a .csv or .parquet file")
    if file.suffix not in (".csv", ".parquet"):
        raise EquimetricError(f"{str(file)!r} is neither a .csv nor a .parquet file; give one of these")
    table = _read_csv(file) if file.suffix == ".csv" else _read_parquet(file)
    for name in required:
        if name not in table:
            raise UnknownColumnError(f"{str(file)!r} has no column {name!r}; {did_you_mean(name, table)}", list(table))
    if not table[required[0]]:
        raise EquimetricError(f"{str(file)!r} has no rows; list at least one image")
    return {name: table[name] for name in (*required, *optional) if name in table}


def _read_csv(file: Path) -> dict[str, list[str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.reader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise EquimetricError(f"{str(file)!r} is not a .csv file in UTF-8 ({error})") from None
    header, *body = rows or [[]]
    for line_number, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise EquimetricError(
                f"line {line_number} of {str(file)!r} has {len(row)} cells; the header has {len(header)}"
            )
    return {name.strip(): [row[column].strip() for row in body] for column, name in enumerate(header)}


def _read_parquet(file: Path) -> dict[str, list[str]]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise EquimetricError("reading .parquet files needs pyarrow; install it with: pip install pyarrow") from None
    try:
        columns = parquet.read_table(file).to_pydict()
    except Exception as error:  # a damaged file raises errors of many kinds
        raise EquimetricError(f"{str(file)!r} is not a .parquet file ({error})") from None
    return {name: ["" if value is None else str(value) for value in values] for name, values in columns.items()}


def parse_part(value: str, file: Path) -> str:
    """The part of a split from its usual names: 'val' is validation; upper or lower case."""
    part = OTHER_NAMES.get(value.lower(), value.lower())
    if part not in PARTS:
        raise unknown_name(f"part in {str(file)!r}", value, PARTS)
    return part


def _parts(split: Sequence[str] | None, mark: Sequence[str] | None, file: Path) -> list[str] | None:
    """The part of each row: its mark if it has one, otherwise its split; a row without either is for training."""
    if split is None and mark is None:
        return None
    rows = len(split or mark or ())
    parts = []
    for part, marked in zip(split or [""] * rows, mark or [""] * rows, strict=True):
        if marked and marked.lower() not in ("query", "gallery"):
            raise unknown_name(f"mark in {str(file)!r}", marked, ("query", "gallery"))
        if marked and part and parse_part(part, file) != "test":
            raise EquimetricError(
                f"{str(file)!r} marks an image of part {part!r} as {marked!r}; only test images can be"
            )
        if split is not None and not part and not marked:
            raise EquimetricError(f"{str(file)!r} has a row without a part; say train, validation or test in every row")
        parts.append(marked.lower() or (parse_part(part, file) if part else "train"))
    if "test" in parts and ("query" in parts or "gallery" in parts):
        raise EquimetricError(f"{str(file)!r} marks some test images as query or gallery; mark all of them or none")
    return parts


def _superclass_of(labels: Sequence[str], superclasses: Sequence[str], file: Path) -> dict[str, str]:
    """The superclass of each label, which must be the same in all its rows."""
    superclass_of: dict[str, str] = {}
    for row, (label, superclass) in enumerate(zip(labels, superclasses, strict=True), start=1):
        if superclass_of.setdefault(label, superclass) != superclass:
            raise EquimetricError(
                f"row {row} of {str(file)!r} puts the label {label!r} into {superclass!r}, another row into "
                f"{superclass_of[label]!r}; a label has one superclass"
            )
    return superclass_of


def _boxes(columns: Mapping[str, Sequence[str]], file: Path) -> list[Box | None] | None:
    box_columns = [name for name in BOX_COLUMNS if name in columns]
    if not box_columns:
        return None
    if len(box_columns) < len(BOX_COLUMNS):
        raise EquimetricError(
            f"{str(file)!r} has the columns {', '.join(box_columns)}; a bounding box needs x, y, w and h"
        )
    boxes: list[Box | None] = []
    for row, cells in enumerate(zip(*(columns[name] for name in BOX_COLUMNS), strict=True), start=1):
        if not any(cells):
            boxes.append(None)
            continue
        try:
            x, y, w, h = (float(cell) for cell in cells)
        except ValueError:
            x = y = w = h = math.nan
        if not all(map(math.isfinite, (x, y, w, h))):
            raise EquimetricError(f"row {row} of {str(file)!r} has the bounding box {quote(cells)}; give four numbers")
        if not (w > 0 and h > 0):
            raise EquimetricError(
                f"row {row} of {str(file)!r} has a bounding box of {w:g}×{h:g} pixels; give a larger one"
            )
        boxes.append((x, y, w, h))
    return boxes


def _sort_labels(labels: set[str]) -> list[str]:
    try:
        return sorted(labels, key=int)
    except ValueError:
        return sorted(labels)
