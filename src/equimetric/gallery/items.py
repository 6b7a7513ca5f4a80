"""Ids and metadata of the items: Parquet files, each of consecutive rows, merged as they grow many."""

import io
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from equimetric.errors import DamagedFileError, EquimetricError, quote
from equimetric.files import write_atomically
from equimetric.gallery.manifest import ItemPart

__all__ = ["ID", "ItemTable", "make_table", "write_part"]

ID = "id"


class ItemTable:
    """Ids and metadata of all rows, removed ones included; read lazily.

    The files are opened at once: another process may replace them by merged ones.
    """

    def __init__(self, folder: Path, parts: Sequence[ItemPart]) -> None:
        self._folder = folder
        self._opened = [_open_part(folder, part) for part in parts]

    @cached_property
    def ids(self) -> Any:
        """The ids of all rows, an Arrow array of strings."""
        # Reading takes several times the memory of the ids, which Arrow's own pool would keep.
        ids = pa.concat_arrays(self.column(ID).chunks, memory_pool=pa.system_memory_pool())
        pa.default_memory_pool().release_unused()
        return ids

    @property
    def schema(self) -> Any:
        """Names and types of the columns; None before the first row."""
        return self._read_file(0, pq.read_schema) if self._opened else None

    def column(self, name: str) -> Any:
        """A column of all rows, an Arrow array in chunks."""
        return self._read([name]).column(name)

    def table(self) -> Any:
        """All columns of all rows, an Arrow table."""
        return self._read(None)

    def tail(self, parts: int) -> list[Any]:
        """The tables of the last parts."""
        return [self._read_part(index, None) for index in range(len(self._opened) - parts, len(self._opened))]

    def find(self, names: Sequence[str], live: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The live row of each id; −1 where there is none."""
        rows = np.full(len(names), -1)
        if self._opened and names:
            position = pc.index_in(self.ids, value_set=pa.array(names, pa.string())).fill_null(-1).to_numpy()
            matches = np.flatnonzero((position >= 0) & live)
            rows[position[matches]] = matches
        return rows

    def _read(self, columns: list[str] | None) -> Any:
        return pa.concat_tables([self._read_part(index, columns) for index in range(len(self._opened))])

    def _read_part(self, index: int, columns: list[str] | None) -> Any:
        """Some columns of a part, or all."""
        return self._read_file(index, lambda file: pq.ParquetFile(file).read(columns, use_threads=False))

    def _read_file(self, index: int, read: Callable[[Any], Any]) -> Any:
        try:
            return read(self._opened[index])
        except (pa.ArrowException, OSError) as problem:
            reason = str(problem).splitlines()[0]
            raise DamagedFileError(
                f"ids or metadata of {self._folder} are damaged ({reason})", "restore it from a copy"
            ) from None


def _open_part(folder: Path, part: ItemPart) -> Any:
    # Not memory-mapped: pages read once would count as memory from then on.
    opened = pa.OSFile(str(folder / part.file))
    if part.bytes is not None and opened.size() != part.bytes:
        raise DamagedFileError(
            f"{folder / part.file} is damaged ({opened.size()} bytes instead of {part.bytes})", "restore it from a copy"
        )
    return opened


def make_table(ids: Sequence[str], metadata: Mapping[str, Any] | Any, count: int, schema: Any) -> Any:
    """Ids and metadata as an Arrow table with the columns of `schema`, if any."""
    names = _check_ids(ids, count)
    mapping = (
        dict(zip(metadata.column_names, metadata.columns, strict=True)) if isinstance(metadata, pa.Table) else metadata
    )
    if not isinstance(mapping, Mapping):
        raise EquimetricError(
            f"metadata are of type {type(mapping).__name__}; give a mapping of columns, such as {{'name': [...]}}"
        )
    if ID in mapping:
        raise EquimetricError(f"the metadata have a column {ID!r}, which is that of the ids; rename it")
    if schema is not None and {ID, *mapping} != set(schema.names):
        raise EquimetricError(
            f"the metadata have the columns {sorted(mapping)}, those of this gallery {sorted({*schema.names} - {ID})}; "
            "give the same columns"
        )
    columns = {ID: pa.array(names, pa.string())}
    for name, values in mapping.items():
        columns[name] = _make_column(name, values, count, None if schema is None else schema.field(name).type)
    return pa.table(columns)


def write_part(
    folder: Path, version: int, table: Any, items: ItemTable, parts: Sequence[ItemPart]
) -> tuple[ItemPart, ...]:
    """Write a table as a new part, and return all parts; smaller ones before it are merged into it.

    A part is smaller than the one before it, so that there are few, and a row is copied a few times in all.
    """
    merged, rows = 0, table.num_rows
    while merged < len(parts) and parts[-1 - merged].rows <= rows:
        rows += parts[-1 - merged].rows
        merged += 1
    buffer = io.BytesIO()
    pq.write_table(pa.concat_tables([*items.tail(merged), table]), buffer, write_page_checksum=True)
    file = f"items-{version}.parquet"
    content = buffer.getvalue()
    write_atomically(folder / file, content)
    return *parts[: len(parts) - merged], ItemPart(file, rows, len(content), zlib.crc32(content))


def _check_ids(ids: Sequence[str], count: int) -> list[str]:
    if isinstance(ids, str):
        raise EquimetricError("ids are one string; give a list of strings, one for each vector")
    names = list(ids)
    invalid = next((name for name in names if not isinstance(name, str)), None)
    if invalid is not None:
        raise EquimetricError(f"the id {quote(invalid)} is no string; give strings, such as str(number)")
    if len(names) != count:
        raise EquimetricError(f"there are {count} vectors but {len(names)} ids; give exactly one id for each")
    if len(set(names)) < count:
        duplicate = next(name for i, name in enumerate(names) if name in names[:i])
        raise EquimetricError(f"the id {quote(duplicate)} occurs more than once; give every item an id of its own")
    return [str(name) for name in names]


def _make_column(name: str, values: Any, count: int, kind: Any) -> Any:
    if not isinstance(name, str):
        raise EquimetricError(f"the metadata have a column {quote(name)}, which is no string; name columns by strings")
    try:
        column = values if isinstance(values, pa.ChunkedArray | pa.Array) else pa.array(values)
        column = column if kind is None else column.cast(kind)
    except (pa.ArrowException, TypeError) as problem:
        expected = "" if kind is None else f" as {kind}"
        raise EquimetricError(
            f"the metadata column {name!r} cannot be stored{expected} ({str(problem).splitlines()[0]}); give values of "
            "one type"
        ) from None
    if len(column) != count:
        raise EquimetricError(f"there are {count} vectors but {len(column)} values of {name!r}; give one for each")
    return column
