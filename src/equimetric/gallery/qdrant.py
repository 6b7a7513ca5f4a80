"""`QdrantGallery`: a gallery in a collection of a Qdrant server, for several machines.

The folder keeps certificates, and where the collection is; the server keeps ids, metadata and vectors. Every search is
exact (`exact=True`: the server's graph index is not used) and scored again here.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equimetric.errors import EquimetricError, StorageError
from equimetric.evaluation.engine.inputs import EmbeddingsLike
from equimetric.extras import import_extra
from equimetric.gallery.certificates import AnyCertificate
from equimetric.gallery.comparison import CertifiedComparison
from equimetric.gallery.gallery import check_item_ids
from equimetric.gallery.items import ID, make_table
from equimetric.gallery.rescored import RescoredGallery, StoredItems, product_width, vectors_to_store
from equimetric.gallery.stores import StoreRecord
from equimetric.gallery.writing import write_lock
from equimetric.ops.blocks import slices

__all__ = ["QdrantGallery"]

LOCAL = "local"
"""As url: the client's own store in the gallery's folder, for tests and trials; it keeps all vectors in memory."""
POINTS = 1000
"""Points of a request."""
METADATA, LENGTH, NUMBER = "metadata", "length", "number"
"""Fields of a point besides its id: metadata, the length of its vector, and its rank in the order of adding."""


class QdrantGallery(RescoredGallery):
    """Vectors, ids and metadata in a Qdrant collection; metadata are what JSON can hold.

    Changes of others are visible at once. An addition of more than a thousand items is several requests: after an error
    what was added is removed, after a kill the first requests stay.
    """

    def __init__(self, folder: Path, certificates: tuple[AnyCertificate, ...]) -> None:
        super().__init__(folder, certificates)
        self.refresh()
        self.collection = str(self.record.options["collection"])
        self._client = _connect(folder, str(self.record.options["url"]))
        with _explain(self._server):
            exists = self._client.collection_exists(self.collection)
        if not exists:
            raise EquimetricError(f"{self._server} has no collection {self.collection!r}; restore it, or index again")

    @classmethod
    def prepare(
        cls,
        folder: Path,
        certificates: tuple[AnyCertificate, ...],
        identity: str | None,
        *,
        url: str = "http://localhost:6333",
        collection: str | None = None,
        **options: Any,
    ) -> None:
        """Make an empty collection.

        url         URL of the server; 'local' for the client's own store, for tests and trials
        collection  name of the collection; by default that of the folder with a random suffix
        """
        if options:
            raise EquimetricError(f"a gallery in Qdrant has no option {sorted(options)[0]!r}; leave it out")
        name = f"{folder.resolve().name.strip('.')}-{uuid.uuid4().hex[:8]}" if collection is None else collection
        models, client = _import_qdrant().models, _connect(folder, url)
        size = product_width(CertifiedComparison.from_certificate(certificates[0]))
        with _explain(url):
            if client.collection_exists(name):
                raise EquimetricError(f"the collection {name!r} exists at {url}; give another name")
            client.create_collection(name, models.VectorParams(size=size, distance=models.Distance.DOT))
            if url != LOCAL:
                client.create_payload_index(name, LENGTH, models.PayloadSchemaType.FLOAT)
        client.close()
        record = StoreRecord("qdrant", tuple(certificate.task for certificate in certificates), identity)
        replace(record, options={"url": url, "collection": name}).write(folder)

    @property
    def identity(self) -> str | None:
        """The metadata column that names the identity of an item; None where its id does."""
        return self.record.identity

    def __len__(self) -> int:
        with _explain(self._server):
            return int(self._client.count(self.collection, exact=True).count)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._points([name], vectors=False))

    def refresh(self) -> None:
        """Read the folder again; items are always those of the server."""
        self.record = StoreRecord.read(self.folder)
        self._identities = None

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def add(self, vectors: EmbeddingsLike, ids: Sequence[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Add vectors (N, E) under new ids; all of them, or after an error none.

        metadata  a column of N values for each name, or an Arrow table; the first vectors decide names and types
        """
        items = self.comparison.convert_items(vectors)
        with write_lock(self.folder):
            self.refresh()
            table = make_table(ids, {} if metadata is None else metadata, len(items), self._schema())
            names = table.column(ID).to_pylist()
            self._check_new(table, list(self._points(names, vectors=False)))
            stored = vectors_to_store(self.comparison, items)
            self._store_schema(table.schema)
            try:
                self._upsert(names, table.drop_columns([ID]).to_pylist(), stored)
            except BaseException:
                self._delete(names)
                raise

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items, all or after an error none."""
        with write_lock(self.folder):
            self.refresh()
            self._require(ids)
            self._delete(ids)

    def names(self, ids: Sequence[str]) -> list[str]:
        """The identity of each item: its value in the column `identity`, or its id."""
        points = self._require(ids)
        return [item if self.identity is None else points[item].payload[METADATA][self.identity] for item in ids]

    def items(self) -> Any:
        """Ids and metadata of all items, an Arrow table in the order in which they were added."""
        schema = self._schema() or pa.schema([(ID, pa.string())])
        payloads = sorted(
            (point.payload for point in self._scroll()), key=lambda payload: (payload[NUMBER], payload[ID])
        )
        return pa.Table.from_pylist([{ID: payload[ID], **payload[METADATA]} for payload in payloads], schema)

    def read_stored(self, ids: Sequence[str]) -> NDArray[np.float32]:
        """(N, S) the vectors of items as they are stored."""
        points = self._require(ids, vectors=True)
        return np.array([points[item].vector for item in ids], np.float32).reshape(
            len(ids), product_width(self.comparison)
        )

    def max_length(self) -> float:
        """An upper bound of the lengths of the stored vectors (S)."""
        models = _import_qdrant().models
        order = models.OrderBy(key=LENGTH, direction=models.Direction.DESC)
        with _explain(self._server):
            points, _ = self._client.scroll(self.collection, limit=1, order_by=order, with_payload=[LENGTH])
        return float(points[0].payload[LENGTH]) if points else 0.0

    def find_products(self, query: NDArray[np.float32], limit: int, min_product: float | None) -> StoredItems:
        """The items of the largest products with a query (S,), at most `limit`, and none below `min_product`."""
        models = _import_qdrant().models
        # The client's own store always scans all vectors, and warns of search parameters.
        exact = None if self.record.options["url"] == LOCAL else models.SearchParams(exact=True)
        with _explain(self._server):
            points = self._client.query_points(
                self.collection,
                query=query.tolist(),
                limit=limit,
                score_threshold=None
                if min_product is None
                else float(np.nextafter(np.float32(min_product), np.float32(-np.inf))),
                search_params=exact,
                with_payload=[ID],
                with_vectors=True,
            ).points
        vectors = np.array([point.vector for point in points], np.float32).reshape(len(points), len(query))
        return StoredItems(
            [point.payload[ID] for point in points], np.array([point.score for point in points]), vectors
        )

    @property
    def _server(self) -> str:
        return f"the Qdrant server {self.record.options['url']!r}"

    def _schema(self) -> Any:
        """Names and types of ids and metadata; None before the first item."""
        encoded = self.record.options.get("schema")
        return None if encoded is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))

    def _store_schema(self, schema: Any) -> None:
        if self.record.options.get("schema") is None:
            encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
            self.record = replace(self.record, options={**self.record.options, "schema": encoded})
            self.record.write(self.folder)

    def _upsert(self, ids: Sequence[str], metadata: list[dict[str, Any]], stored: NDArray[np.float32]) -> None:
        # Nanoseconds order the items of all writers, because adding an item takes longer than one.
        models, first_number = _import_qdrant().models, time.time_ns()
        lengths = np.linalg.norm(stored.astype(np.float64), axis=1).tolist()
        for rows in slices(len(ids), POINTS):
            payloads = [
                {ID: ids[row], METADATA: metadata[row], LENGTH: lengths[row], NUMBER: first_number + row}
                for row in range(rows.start, rows.stop)
            ]
            batch = models.Batch(ids=_point_ids(ids[rows]), vectors=stored[rows].tolist(), payloads=payloads)
            with _explain(self._server):
                self._client.upsert(self.collection, batch, wait=True)

    def _delete(self, ids: Sequence[str]) -> None:
        models = _import_qdrant().models
        for rows in slices(len(ids), POINTS):
            with _explain(self._server):
                selected = models.PointIdsList(points=_point_ids(ids[rows]))
                self._client.delete(self.collection, selected, wait=True)

    def _points(self, ids: Sequence[str], *, vectors: bool) -> dict[str, Any]:
        """The points of those ids that are in the gallery, by id."""
        points = []
        for rows in slices(len(ids), POINTS):
            with _explain(self._server):
                points += self._client.retrieve(
                    self.collection, _point_ids(ids[rows]), with_payload=True, with_vectors=vectors
                )
        return {point.payload[ID]: point for point in points}

    def _require(self, ids: Sequence[str], *, vectors: bool = False) -> dict[str, Any]:
        """The points of ids, all of which are here."""
        check_item_ids(ids, ())
        points = self._points(list(dict.fromkeys(ids)), vectors=vectors)
        check_item_ids(ids, [item for item in dict.fromkeys(ids) if item not in points])
        return points

    def _scroll(self) -> Iterator[Any]:
        """All points, without vectors."""
        offset = None
        while True:
            with _explain(self._server):
                points, offset = self._client.scroll(self.collection, limit=POINTS, offset=offset, with_payload=True)
            yield from points
            if offset is None:
                return


def _import_qdrant() -> Any:
    return import_extra(
        "qdrant_client", "a gallery in Qdrant", "qdrant-client", "qdrant", "use the store 'embedded' or 'lancedb'"
    )


def _connect(folder: Path, url: str) -> Any:
    client = _import_qdrant().QdrantClient
    return client(path=str(folder / "qdrant")) if url == LOCAL else client(url=url, check_compatibility=False)


def _point_ids(ids: Sequence[str]) -> list[str]:
    """UUIDs of points as a function of the items' ids, so that an id occurs once."""
    return [str(uuid.uuid5(uuid.NAMESPACE_OID, item)) for item in ids]


@contextmanager
def _explain(server: str) -> Iterator[None]:
    """Turn errors of the client into one sentence."""
    package = _import_qdrant()
    exceptions = package.http.exceptions
    try:
        yield
    except (exceptions.ApiException, ConnectionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise StorageError(f"{server} did not answer as expected ({reason}); check that it runs and its url") from None
