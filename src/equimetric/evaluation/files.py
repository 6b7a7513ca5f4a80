"""Embeddings read from a file: .npz, .safetensors, .parquet, or .npy with the labels in a .csv or another .npy.

A table (.parquet, .csv) has one row per embedding. Its column `label` holds the classes, integers or strings; an
optional column `set` says `query` or `gallery` where the two differ. In a .parquet file the vectors are lists in a
column `embedding`, or spread over floating-point columns, one per dimension, in the order of the file; other columns
are ignored. Large arrays of .npy and .safetensors files are mapped, and need not fit into memory: see `mapped_files`.
"""

import re
import zipfile
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError, did_you_mean, unknown_name
from equimetric.evaluation.mapped_files import read_npy, read_safetensors
from equimetric.evaluation.table_files import read_csv_rows, read_parquet_table

__all__ = ["read_cohort", "read_embeddings", "read_labels", "read_vectors"]

REQUIRED = ("embeddings", "labels")
OPTIONAL = ("gallery_embeddings", "gallery_labels")
PARENTS = ("parents", "gallery_parents")
IDS = ("ids",)
"""What trial lists call the rows: see `trial_lists`."""
COHORT = ("cohort_embeddings", "cohort_labels")
SIDES = ("query", "gallery")
NAMED_ARRAYS = (".npz", ".safetensors")
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def read_embeddings(
    file: Path | str, labels: Path | str | None = None, parents: str | None = None
) -> dict[str, NDArray[Any]]:
    """The arrays `embeddings` and `labels`, and those of the gallery if present, as arguments of `evaluate`.

    file     .npz or .safetensors with these arrays, .parquet, or .npy with an (N, D) array of embeddings
    labels   the .csv or .npy with the labels of an .npy file; default: the same name with the ending .csv
    parents  the array of an .npz or .safetensors file with the superclass of every sample, `gallery_…` for those of a
             gallery
    """
    file = Path(file)
    reader = READERS.get(file.suffix.lower())
    if not file.exists():
        raise EquimetricError(f"there is no file {str(file)!r}; check the path")
    if reader is None:
        raise EquimetricError(f"{str(file)!r} is not one of the file types that can be read: {', '.join(READERS)}")
    if labels is not None and file.suffix.lower() != ".npy":
        raise EquimetricError(f"{str(file)!r} holds its own labels; a file of labels goes only with an .npy file")
    if file.suffix.lower() in NAMED_ARRAYS:
        return _read_named(file, parents=parents)
    if parents is not None:
        raise EquimetricError(
            f"parents are read from an .npz or .safetensors file or from a run, not from {str(file)!r}"
        )
    return reader(file, Path(labels) if labels is not None else file.with_suffix(".csv"))


def read_vectors(file: Path | str) -> NDArray[Any]:
    """The embeddings of a file alone, (N, D); it needs no labels."""
    file = Path(file)
    kind = file.suffix.lower()
    if not file.exists():
        raise EquimetricError(f"there is no file {str(file)!r}; check the path")
    if kind not in READERS:
        raise EquimetricError(f"{str(file)!r} is not one of the file types that can be read: {', '.join(READERS)}")
    if kind == ".parquet":
        arrow, table = read_parquet_table(file)
        return _vectors(table, arrow, file)
    stored = _load(file)
    vectors = stored.get("embeddings") if isinstance(stored, dict) else stored
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2:
        raise EquimetricError(
            f"{str(file)!r} holds no (N, D) array of embeddings; write one with numpy.savez(file, embeddings=…) or "
            "numpy.save(file, …)"
        )
    return vectors


def read_labels(file: Path | str) -> NDArray[Any] | None:
    """The labels in a file that `read_vectors` reads; None where it holds none. Those beside an .npy do not count."""
    file = Path(file)
    if file.suffix.lower() == ".parquet":
        table = read_parquet_table(file)[1]
        return (
            _parse_labels([str(label) for label in table["label"].to_pylist()])
            if "label" in table.column_names
            else None
        )
    stored = _load(file)
    return stored.get("labels") if isinstance(stored, dict) else None


def read_cohort(file: Path | str, *, embedded_only: bool = False) -> dict[str, NDArray[Any]] | None:
    """The embeddings of a cohort, with labels where there are any, as arguments of `Cohort`.

    An .npz or .safetensors file has the arrays `cohort_embeddings` and `cohort_labels`, or else `embeddings` and
    `labels`. With `embedded_only`, only a cohort stored with other embeddings; None where there is none.
    """
    file = Path(file)
    stored = _load(file) if file.suffix.lower() in (*NAMED_ARRAYS, ".npy") and file.exists() else None
    if isinstance(stored, dict) and COHORT[0] in stored:
        return {name.removeprefix("cohort_"): stored[name] for name in COHORT if name in stored}
    if embedded_only:
        return None
    has_labels = "labels" in stored if isinstance(stored, dict) else file.with_suffix(".csv").exists()
    if stored is not None and not has_labels:
        return {"embeddings": read_vectors(file)}
    arrays = read_embeddings(file)
    if "gallery_embeddings" in arrays:
        raise EquimetricError(f"{str(file)!r} has queries and a gallery; a cohort is one set of embeddings")
    return arrays


def _read_named(file: Path, _: Path | None = None, *, parents: str | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz or .safetensors file."""
    arrays = _load(file)
    if not isinstance(arrays, dict):
        raise EquimetricError(
            f"{str(file)!r} is not an .npz file of plain arrays (of dtype object none can be read: convert such labels "
            "with .astype(str)); write one with numpy.savez(file, embeddings=…, labels=…)"
        )
    # They are no arguments of `evaluate`: see `read_cohort`.
    arrays = {name: array for name, array in arrays.items() if name not in COHORT}
    if parents is not None:
        arrays = _name_parents(arrays, parents, file)
    arrays = {name: array for name, array in arrays.items() if name not in IDS}
    valid_names = REQUIRED + OPTIONAL + PARENTS
    missing = [name for name in REQUIRED if name not in arrays]
    unknown = [name for name in arrays if name not in valid_names]
    misspelt = [name for name in unknown if get_close_matches(name, valid_names)]
    if missing and not misspelt:
        raise EquimetricError(
            f"{str(file)!r} has no array {missing[0]!r}; it needs 'embeddings' and 'labels', and has "
            f"{', '.join(map(repr, arrays)) or 'none'}"
        )
    if unknown:
        raise unknown_name(f"array of {str(file)!r}:", (misspelt or unknown)[0], (*valid_names, *IDS))
    # Without the option a file's parents are not used.
    return arrays if parents is not None else {name: array for name, array in arrays.items() if name not in PARENTS}


def _name_parents(arrays: dict[str, NDArray[Any]], parents: str, file: Path) -> dict[str, NDArray[Any]]:
    """The arrays with those of this name as `parents` and `gallery_parents`."""
    if parents not in arrays:
        raise EquimetricError(f"{str(file)!r} has no array {parents!r} of parents; {did_you_mean(parents, arrays)}")
    new_names = {parents: "parents", f"gallery_{parents}": "gallery_parents"}
    return {new_names.get(name, name): array for name, array in arrays.items()}


def _read_npy(file: Path, labels: Path) -> dict[str, NDArray[Any]]:
    embeddings = _load(file)
    if not isinstance(embeddings, np.ndarray):
        raise EquimetricError(f"{str(file)!r} is not an .npy file of numbers; write one with numpy.save(file, …)")
    if embeddings.ndim != 2:
        raise EquimetricError(f"{str(file)!r} holds an array of shape {embeddings.shape}; it must be (N, D)")
    if labels.suffix.lower() == ".npy":
        return {"embeddings": embeddings, "labels": _read_label_array(labels, len(embeddings), file)}
    if not labels.exists():
        raise EquimetricError(
            f"there is no file {str(labels)!r} with the labels of {str(file)!r}; write it, with a column 'label', or "
            "name another"
        )
    columns = _read_csv(labels)
    if len(columns["label"]) != len(embeddings):
        raise EquimetricError(
            f"{str(file)!r} has {len(embeddings)} embeddings but {str(labels)!r} has {len(columns['label'])} labels; "
            "give one line for each"
        )
    return _split_sides(embeddings, _parse_labels(columns["label"]), columns.get("set"), labels)


def _read_label_array(labels: Path, count: int, file: Path) -> NDArray[Any]:
    """The labels of an .npy file in another one."""
    if not labels.exists():
        raise EquimetricError(f"there is no file {str(labels)!r}; check the path")
    array = read_npy(labels)
    if array is None:
        raise EquimetricError(f"{str(labels)!r} is not an .npy file of labels; write one with numpy.save(file, labels)")
    if len(array) != count:
        raise EquimetricError(
            f"{str(file)!r} has {count} embeddings but {str(labels)!r} has {len(array)} labels; give one for each"
        )
    return np.asarray(array)


def _read_csv(file: Path) -> dict[str, list[str]]:
    """The columns `label` and, where present, `set` of a table with a header line."""
    header, rows = read_csv_rows(file)
    if "label" not in header:
        raise EquimetricError(
            f"{str(file)!r} has no column 'label' (its first line reads {','.join(header)[:60]!r}); "
            "name the column of the classes 'label' in the first line"
        )
    columns: dict[str, list[str]] = {name: [row[name] for row in rows] for name in ("label", "set") if name in header}
    for name, values in columns.items():
        empty = next((row for row, value in enumerate(values) if not value), None)
        if empty is not None:
            raise EquimetricError(f"row {empty} of {str(file)!r} has no {name}; every row below the first needs one")
    return columns


def _read_parquet(file: Path, _: Path) -> dict[str, NDArray[Any]]:
    arrow, table = read_parquet_table(file)
    if "label" not in table.column_names:
        raise EquimetricError(f"{str(file)!r} has no column 'label' but {', '.join(table.column_names)}; name it so")
    for name in table.column_names:
        if name in ("label", "set", "embedding") and table[name].null_count:
            raise EquimetricError(f"column {name!r} of {str(file)!r} has empty entries; every row needs one")
    labels = table["label"]
    if arrow.types.is_dictionary(labels.type):
        labels = labels.cast(labels.type.value_type)
    sides = table["set"].to_pylist() if "set" in table.column_names else None
    return _split_sides(_vectors(table, arrow, file), labels.to_numpy(), sides, file)


def _vectors(table: Any, arrow: Any, file: Path) -> NDArray[Any]:
    """(N, D) from the lists in the column `embedding`, or from the floating-point columns, one per dimension."""
    if "embedding" not in table.column_names:
        dimensions = [
            field.name for field in table.schema if arrow.types.is_floating(field.type) and field.name != "label"
        ]
        if not dimensions:
            raise EquimetricError(
                f"{str(file)!r} has neither a column 'embedding' of lists nor floating-point columns; its columns are "
                f"{', '.join(table.column_names)}"
            )
        return np.stack([table[name].to_numpy() for name in dimensions], axis=1)
    lists = table["embedding"].combine_chunks()
    kinds = arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list
    if not any(is_kind(lists.type) for is_kind in kinds):
        raise EquimetricError(
            f"column 'embedding' of {str(file)!r} is of type {lists.type}; it must hold lists of numbers"
        )
    lengths = import_module("pyarrow.compute").list_value_length(lists).to_numpy(zero_copy_only=False)
    if len(set(lengths.tolist())) > 1:
        row = int((lengths != lengths[0]).argmax())
        raise EquimetricError(
            f"embedding 0 of {str(file)!r} has {lengths[0]} dimensions but embedding {row} has {lengths[row]}; "
            "all must have the same"
        )
    values: NDArray[Any] = lists.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(lists), lengths[0] if len(lists) else 0)


def _split_sides(
    embeddings: NDArray[Any], labels: NDArray[Any], sides: Sequence[str] | None, file: Path
) -> dict[str, NDArray[Any]]:
    """All rows as embeddings, or those marked `query` as embeddings and those marked `gallery` as the gallery."""
    if sides is None:
        return {"embeddings": embeddings, "labels": labels}
    for side in dict.fromkeys(sides):
        if side not in SIDES:
            raise unknown_name(f"entry of column 'set' in {str(file)!r}", str(side), SIDES)
    in_gallery = np.array([side == "gallery" for side in sides], dtype=bool)
    if in_gallery.all() or not in_gallery.any():
        raise EquimetricError(
            f"column 'set' of {str(file)!r} must name both queries and gallery items; without a gallery, leave it out"
        )
    return {
        "embeddings": embeddings[~in_gallery],
        "labels": labels[~in_gallery],
        "gallery_embeddings": embeddings[in_gallery],
        "gallery_labels": labels[in_gallery],
    }


def _parse_labels(texts: list[str]) -> NDArray[Any]:
    """Integers if all texts are integers, else strings: 007 is a name, not the number 7."""
    numbers = [int(text) if INTEGER.fullmatch(text) else None for text in texts]
    return np.array(texts, dtype=np.str_) if None in numbers else np.array(numbers, dtype=np.int64)


def _load(file: Path) -> Any:
    """A dict of arrays, one array, or None for a file that numpy cannot read without pickle."""
    if file.suffix.lower() == ".safetensors":
        return read_safetensors(file)
    if file.suffix.lower() == ".npy":
        return read_npy(file)
    try:
        # Opened here, because numpy leaves a file open that is not an archive.
        with file.open("rb") as stream:
            stored = np.load(stream, allow_pickle=False)
            if isinstance(stored, np.ndarray):
                return stored
            with stored:
                return {name: stored[name] for name in stored.files}
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile):
        return None


READERS: dict[str, Callable[[Path, Path], dict[str, NDArray[Any]]]] = {
    ".npz": _read_named,
    ".safetensors": _read_named,
    ".parquet": _read_parquet,
    ".npy": _read_npy,
}
