"""Rows of .csv files and tables of .parquet files, with errors that name the file."""

import csv
from importlib import import_module
from pathlib import Path
from typing import Any

from equimetric.errors import EquimetricError

__all__ = ["read_csv_rows", "read_parquet_table"]


def read_csv_rows(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The names in the header line, and the rows below it by these names."""
    try:
        # utf-8-sig: spreadsheets write a byte-order mark, which would become part of the first column's name.
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, skipinitialspace=True, strict=True)
            return list(reader.fieldnames or []), list(reader)
    except (UnicodeDecodeError, csv.Error) as problem:
        raise EquimetricError(f"{str(file)!r} is not a .csv file in UTF-8 ({problem})") from None


def read_parquet_table(file: Path) -> tuple[Any, Any]:
    """The package pyarrow, and the table of a .parquet file."""
    try:
        # By name: pyarrow is optional.
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise EquimetricError("reading .parquet files needs pyarrow; install it with: pip install pyarrow") from None
    try:
        return arrow, parquet.read_table(file)
    except (OSError, arrow.ArrowException) as problem:
        raise EquimetricError(f"{str(file)!r} is not a .parquet file ({problem})") from None
