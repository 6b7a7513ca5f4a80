"""`LanceGallery`: a gallery in a LanceDB table, for one machine and more vectors than its memory holds.

The table is in the gallery's folder. Every search scans the vectors themselves (`bypass_vector_index`), so that an
index that a user builds on the table changes no result.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.inputs import EmbeddingsLike
from equimetric.extras import import_extra
from equimetric.gallery.certificates import AnyCertificate
from equimetric.gallery.gallery import check_item_ids
from equimetric.gallery.items import ID, make_table
from equimetric.gallery.rescored import RescoredGallery, StoredItems, vectors_to_store
from equimetric.gallery.stores import StoreRecord
from equimetric.gallery.writing import write_lock
from equimetric.ops.blocks import slices

__all__ = ["LanceGallery"]

TABLE, VECTOR = "items", "stored_vector"
MAX_LENGTH_OPTION = "longest"
"""Option of the record: the length of the longest vector that was ever added."""
IDS_PER_QUERY = 1000
"""Ids per lookup: they are part of the text of a query."""


class LanceGallery(RescoredGallery):
    """Vectors, ids and metadata in a LanceDB table.

    Several processes may read and change one gallery: changes are made one after another, and `refresh` shows those of
    other processes. An addition is a version of the table, there whole or not at all.
    """

    def __init__(self, folder: Path, certificates: tuple[AnyCertificate, ...]) -> None:
        super().__init__(folder, certificates)
        self._database = _import_lancedb().connect(str(folder))
        self.refresh()

    @classmethod
    def prepare(
        cls, folder: Path, certificates: tuple[AnyCertificate, ...], identity: str | None, **options: Any
    ) -> None:
        """Write the record; the first items decide the columns of the table."""
        if options:
            raise EquimetricError(f"a gallery in LanceDB has no option {sorted(options)[0]!r}; leave it out")
        _import_lancedb()
        StoreRecord("lancedb", tuple(certificate.task for certificate in certificates), identity).write(folder)

    @property
    def identity(self) -> str | None:
        """The metadata column that names the identity of an item; None where its id does."""
        return self.record.identity

    def __len__(self) -> int:
        return 0 if self._table is None else int(self._table.count_rows())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._find_existing([name]))

    def refresh(self) -> None:
        """Show the changes that other processes have made."""
        self.record = StoreRecord.read(self.folder)
        self._identities = None
        exists = (self.folder / f"{TABLE}.lance").is_dir()
        self._table: Any = self._database.open_table(TABLE) if exists else None

    def add(self, vectors: EmbeddingsLike, ids: Sequence[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Add vectors (N, E) under new ids; all of them, or after an error or a kill none.

        metadata  a column of N values for each name, or an Arrow table; the first vectors decide names and types
        """
        items = self.comparison.convert_items(vectors)
        with write_lock(self.folder):
            self.refresh()
            table = make_table(ids, {} if metadata is None else metadata, len(items), self._schema())
            if VECTOR in table.column_names:
                raise EquimetricError(f"the metadata have a column {VECTOR!r}, which is the gallery's; rename it")
            self._check_new(table, self._find_existing(table.column(ID).to_pylist()))
            stored = vectors_to_store(self.comparison, items)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(stored.ravel()), stored.shape[1])
            table = table.append_column(VECTOR, lists)
            self._update_max_length(float(np.linalg.norm(stored.astype(np.float64), axis=1).max()))
            if self._table is None:
                self._database.create_table(TABLE, table)
            else:
                self._table.add(table.select(self._table.schema.names))
            self.refresh()

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items, all or after an error none. Their rows stay in older versions of the table until these go."""
        check_item_ids(ids, ())
        with write_lock(self.folder):
            self.refresh()
            self._require(ids)
            if len(ids):
                self._table.delete(_id_filter(list(dict.fromkeys(ids))))
            self.refresh()

    def names(self, ids: Sequence[str]) -> list[str]:
        """The identity of each item: its value in the column `identity`, or its id."""
        self._require(ids)
        if self.identity is None:
            return list(ids)
        identity_by_id = dict(zip(*self._read(ids, [ID, self.identity]).to_pydict().values(), strict=True))
        return [identity_by_id[item] for item in ids]

    def items(self) -> Any:
        """Ids and metadata of all items, an Arrow table in the order in which they were added."""
        if self._table is None:
            return pa.table({ID: pa.array([], pa.string())})
        names = [name for name in self._table.schema.names if name != VECTOR]
        return self._table.search().select(names).limit(max(len(self), 1)).to_arrow().select(names)

    def read_stored(self, ids: Sequence[str]) -> NDArray[np.float32]:
        """(N, S) the vectors of items as they are stored."""
        self._require(ids)
        table = self._read(ids, [ID, VECTOR])
        row_by_id = {item: row for row, item in enumerate(table.column(ID).to_pylist())}
        return _to_matrix(table.column(VECTOR))[[row_by_id[item] for item in ids]]

    def max_length(self) -> float:
        """An upper bound of the lengths of the stored vectors (S)."""
        return float(self.record.options.get(MAX_LENGTH_OPTION, 0.0))

    def find_products(self, query: NDArray[np.float32], limit: int, min_product: float | None) -> StoredItems:
        """The items of the largest products with a query (S,), at most `limit`, and none below `min_product`."""
        if self._table is None:
            return StoredItems([], np.empty(0), np.empty((0, len(query)), np.float32))
        search = self._table.search(query, vector_column_name=VECTOR).distance_type("dot").bypass_vector_index()
        if min_product is not None:
            # LanceDB calls 1 − q·x a distance; its upper bound is exclusive, and in float32.
            search = search.distance_range(
                upper_bound=float(np.nextafter(np.float32(1 - min_product), np.float32(np.inf)))
            )
        results = search.select([ID, VECTOR, "_distance"]).limit(limit).to_arrow()
        products = 1 - results.column("_distance").to_numpy().astype(np.float64)
        return StoredItems(results.column(ID).to_pylist(), products, _to_matrix(results.column(VECTOR)))

    def _update_max_length(self, max_length: float) -> None:
        """Store the bound of lengths before the vectors that need it."""
        if max_length > self.max_length():
            self.record = replace(self.record, options={MAX_LENGTH_OPTION: max_length})
            self.record.write(self.folder)

    def _schema(self) -> Any:
        """Names and types of ids and metadata; None before the first item."""
        if self._table is None:
            return None
        return pa.schema([field for field in self._table.schema if field.name != VECTOR])

    def _find_existing(self, ids: Sequence[str]) -> list[str]:
        """The ids that are in the gallery."""
        return [] if self._table is None else list(self._read(ids, [ID]).column(ID).to_pylist())

    def _require(self, ids: Sequence[str]) -> None:
        check_item_ids(ids, ())
        existing = set(self._find_existing(ids))
        check_item_ids(ids, [item for item in dict.fromkeys(ids) if item not in existing])

    def _read(self, ids: Sequence[str], columns: list[str]) -> Any:
        """The columns of the rows of ids, in any order."""
        unique_ids = list(dict.fromkeys(ids))
        parts = [
            self._table.search()
            .where(_id_filter(unique_ids[rows]))
            .select(columns)
            .limit(len(unique_ids[rows]))
            .to_arrow()
            for rows in slices(len(unique_ids), IDS_PER_QUERY)
        ]
        return pa.concat_tables([part.select(columns) for part in parts])


def _import_lancedb() -> Any:
    os.environ.setdefault("LANCE_LOG", "error")  # it warns of every table that it is asked to make
    return import_extra("lancedb", "a gallery in LanceDB", "lancedb", "lancedb", "use the store 'embedded'")


def _id_filter(ids: Sequence[str]) -> str:
    """SQL condition that an id is one of these."""
    quoted = ", ".join("'" + item.replace("'", "''") + "'" for item in ids)
    return f"{ID} IN ({quoted})"


def _to_matrix(column: Any) -> NDArray[np.float32]:
    """(N, S) of a column of lists."""
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat, np.float32).reshape(len(column), column.type.list_size)
