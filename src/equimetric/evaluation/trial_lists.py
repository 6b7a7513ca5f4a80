"""Trial lists: which pairs of samples to verify, as in face and speaker verification, and whether each is of one class.

A table has the columns `id_a`, `id_b` and `same`, one row per trial: a .csv or .parquet file, or arrays. Ids are those
of an array with one id per embedding, or without one the row numbers from 0.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError, quote
from equimetric.evaluation.engine.arrays import Integers
from equimetric.evaluation.engine.inputs import LabelArray, LabelsLike, convert_labels
from equimetric.evaluation.mapped_files import read_safetensors
from equimetric.evaluation.table_files import read_csv_rows, read_parquet_table

__all__ = ["TrialList", "TrialsLike", "read_ids", "read_trials"]

COLUMNS = ("id_a", "id_b", "same")
TRUTHS = {"1": True, "0": False, "1.0": True, "0.0": False, "true": True, "false": False}
TrialsLike = Any
"""A path, columns by name (a mapping or a data frame), or the arrays (id_a, id_b, same)."""


@dataclass(frozen=True, eq=False)
class TrialList:
    """P pairs of rows of the embeddings, (P,) each, and whether they are of one class."""

    first: Integers
    second: Integers
    same: NDArray[np.bool_]


def read_trials(trials: TrialsLike, ids: LabelsLike | None, count: int) -> TrialList:
    """The checked trials of a file, of columns by name or of three arrays, as rows of `count` embeddings."""
    columns = _columns(trials)
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise EquimetricError(f"the columns of the trial list have {sizes} rows; give one of each for every trial")
    if not sizes["same"]:
        raise EquimetricError("the trial list is empty; give at least one pair of each kind")
    same = _read_same(columns["same"])
    first, second = (_find_rows(convert_labels(columns[name], name, len(same)), ids, count) for name in COLUMNS[:2])
    if same.all() or not same.any():
        kind = "the same" if same.all() else "different"
        raise EquimetricError(f"all {len(same)} trials are of {kind} classes; rates need trials of both kinds")
    _check_pairs(first, second)
    return TrialList(first, second, same)


def read_ids(file: Path, labels: Path | None = None) -> NDArray[Any] | None:
    """The ids of the embeddings in a file: the array `ids`, the column `id` of a table; None without.

    labels  the .csv or .npy of an .npy file; default: the same name with the ending .csv
    """
    if file.suffix.lower() == ".npz":
        with np.load(file, allow_pickle=False) as arrays:
            return arrays["ids"] if "ids" in arrays.files else None
    if file.suffix.lower() == ".safetensors":
        return read_safetensors(file).get("ids")
    if labels is not None and labels.suffix.lower() == ".npy":
        return None
    if file.suffix.lower() == ".parquet":
        parquet = import_module("pyarrow.parquet")
        if "id" not in parquet.read_schema(file).names:
            return None
        ids: NDArray[Any] = _column_array(parquet.read_table(file)["id"].to_pylist())
        return ids
    with (labels or file.with_suffix(".csv")).open(newline="", encoding="utf-8-sig") as stream:
        lines = list(csv.DictReader(stream, skipinitialspace=True))
    return np.array([line["id"] for line in lines], dtype=np.str_) if lines and "id" in lines[0] else None


def _columns(trials: TrialsLike) -> dict[str, Any]:
    if isinstance(trials, str | Path):
        return _read_file(Path(trials))
    if isinstance(trials, Mapping) or hasattr(trials, "columns"):
        names = list(trials.keys())
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise EquimetricError(f"the trial list has no column {missing[0]!r} but {', '.join(map(str, names))[:80]}")
        return {name: _column_array(trials[name]) for name in COLUMNS}
    if len(trials) != len(COLUMNS):
        raise EquimetricError(f"trials have {len(trials)} parts; give a file, or the arrays (id_a, id_b, same)")
    return dict(zip(COLUMNS, map(_column_array, trials), strict=True))


def _column_array(column: Any) -> Any:
    """A column of a data frame as an array; strings as numpy's own."""
    array = np.asarray(column)
    return array.astype(np.str_) if array.dtype.kind in "OT" and all(isinstance(text, str) for text in array) else array


def _read_file(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise EquimetricError(f"there is no file {str(file)!r}; check the path of the trial list")
    if file.suffix.lower() == ".parquet":
        return _read_parquet(file)
    if file.suffix.lower() != ".csv":
        raise EquimetricError(f"{str(file)!r} is not a trial list that can be read: .csv, .parquet")
    header, rows = read_csv_rows(file)
    _check_header(header, file)
    for index, row in enumerate(rows):
        empty = next((name for name in COLUMNS if not row[name]), None)
        if empty is not None:
            raise EquimetricError(f"trial {index} of {str(file)!r} has no {empty}; every row below the first needs one")
    return {name: np.array([row[name] for row in rows], dtype=np.str_) for name in COLUMNS}


def _read_parquet(file: Path) -> dict[str, Any]:
    _, table = read_parquet_table(file)
    _check_header(table.column_names, file)
    for name in COLUMNS:
        if table[name].null_count:
            raise EquimetricError(f"column {name!r} of {str(file)!r} has empty entries; every trial needs one")
    return {name: _column_array(table[name].to_pylist()) for name in COLUMNS}


def _check_header(header: Sequence[str], file: Path) -> None:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise EquimetricError(
            f"{str(file)!r} has no column {missing[0]!r} (its first line reads {','.join(header)[:60]!r}); a trial "
            "list has the columns id_a, id_b and same"
        )


def _read_same(values: Any) -> NDArray[np.bool_]:
    array = np.asarray(values)
    if array.dtype.kind == "b":
        return array
    same = [TRUTHS.get(str(value).strip().lower()) for value in array.tolist()]
    if None in same:
        index = same.index(None)
        raise EquimetricError(
            f"column 'same' holds {quote(array.tolist()[index])} in trial {index}; it must be 1 or 0, true or false"
        )
    return np.array(same, dtype=bool)


def _find_rows(names: LabelArray, ids: LabelsLike | None, count: int) -> Integers:
    """(P,) rows of the ids in a trial list."""
    row_ids = np.arange(count) if ids is None else convert_labels(ids, "ids", count)
    if row_ids.dtype.kind != names.dtype.kind:
        # A .csv file has texts alone.
        row_ids, names = row_ids.astype(np.str_), names.astype(np.str_)
    order = row_ids.argsort(kind="stable")
    duplicates = np.flatnonzero(row_ids[order][1:] == row_ids[order][:-1])
    if len(duplicates):
        rows = sorted(order[duplicates[0] : duplicates[0] + 2].tolist())
        raise EquimetricError(
            f"id {row_ids[rows[0]].item()!r} names the rows {rows[0]} and {rows[1]}; every row needs its own"
        )
    position = np.clip(np.searchsorted(row_ids[order], names), 0, count - 1)
    unknown = np.flatnonzero(row_ids[order][position] != names)
    if len(unknown):
        kind = "rows of the embeddings" if ids is None else "ids"
        raise EquimetricError(
            f"trial {unknown[0]} names {quote(names[unknown[0]].item())}, which is not among the {count} {kind}; "
            f"correct the list{', or give the ids of the rows' if ids is None else ''}"
        )
    return np.asarray(order[position], np.int64)


def _check_pairs(first: Integers, second: Integers) -> None:
    """Raise an error for a sample compared with itself, and for a pair that is listed twice."""
    self_pairs = np.flatnonzero(first == second)
    if len(self_pairs):
        raise EquimetricError(f"trial {self_pairs[0]} compares a sample with itself; remove it from the list")
    pairs = np.sort(np.stack([first, second], 1), axis=1)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    repeats = np.flatnonzero((pairs[order][1:] == pairs[order][:-1]).all(1))
    if len(repeats):
        first_trial, second_trial = sorted(order[repeats[0] : repeats[0] + 2].tolist())
        raise EquimetricError(
            f"trials {first_trial} and {second_trial} are the same pair; list every pair once, so that all count alike"
        )
