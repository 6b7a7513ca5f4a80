"""`Gallery`: vectors with ids and metadata in a folder, searched exactly, decided by the certificate of the folder."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.calibration.certificate import Certificate
from equimetric.calibration.identification import IdentificationCertificate
from equimetric.errors import EquimetricError, EquimetricWarning, quote
from equimetric.evaluation.engine.inputs import EmbeddingsLike
from equimetric.files import make_folder, unfinished_folder
from equimetric.gallery.block_checksums import GalleryCheck
from equimetric.gallery.certificates import KINDS, AnyCertificate, check_certificates, load_certificates, require_same
from equimetric.gallery.comparison import CertifiedComparison, GalleryQueries
from equimetric.gallery.items import ID
from equimetric.gallery.model_record import ModelRecord
from equimetric.gallery.search import SearchHits
from equimetric.gallery.stores import EMBEDDED, StoreRecord, store_class
from equimetric.ops.blocks import slices

__all__ = ["Gallery", "Identity", "Match"]

ROWS_PER_COPY = 2**16
"""Rows that `save` copies at a time."""


class Match(NamedTuple):
    """A matching item.

    score     the value that the certificate compares with its threshold: a distance, or with a cohort a score
    accepted  whether the certificate accepts it as the same
    """

    id: str
    score: float
    accepted: bool


class Identity(NamedTuple):
    """The identity of a query and its closest item, or None for an unknown one."""

    name: str | None
    id: str | None
    score: float | None


STRANGER = Identity(None, None, None)


class Gallery(ABC):
    """An exact store of vectors under a certificate: `Gallery.open("shop.gallery").search(queries, k=5)`.

    Results are those of scoring every item in float64. With a cohort, items are the gallery vectors of `Cohort.extend`
    and queries its query vectors. Where items are kept, and how they are found, is up to the store.
    """

    def __init__(self, folder: Path, certificates: tuple[AnyCertificate, ...]) -> None:
        self.folder, self.certificates = folder, certificates
        self.comparison = CertifiedComparison.from_certificate(certificates[0])

    @classmethod
    def create(
        cls,
        folder: str | Path,
        certificate: AnyCertificate | Iterable[AnyCertificate],
        *,
        identity: str | None = None,
        store: str = EMBEDDED,
        **options: Any,
    ) -> Gallery:
        """Make an empty gallery in a new folder.

        certificate  certificate whose threshold decides, or one for each task; `search` takes the first
        identity     metadata column that names the identity of an item; by default every id is one
        store        'embedded': files of this folder; 'lancedb': a LanceDB table in it; 'qdrant': a collection of a
                     Qdrant server
        options      options of the store: `url` and `collection` of Qdrant
        """
        folder, certificates, kind = Path(folder), check_certificates(certificate), store_class(store)
        if folder.exists() and not _is_available(folder):
            raise EquimetricError(f"{str(folder)!r} exists and is not empty; give a new folder, or open the gallery")
        make_folder(folder)
        for item in certificates:
            item.save(folder / f"{item.task}.json")
        kind.prepare(folder, certificates, identity, **options)
        return cls.open(folder)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        certificate: AnyCertificate | None = None,
        model: str | None = None,
        preprocessing: str | None = None,
    ) -> Gallery:
        """Open a gallery, whatever its store; what a killed process left is swept.

        certificate, model, preprocessing  of the queries, optional; those of another gallery raise an error
        """
        folder = Path(folder)
        record = StoreRecord.read(folder)
        certificates = load_certificates(folder, record.tasks)
        if certificate is not None:
            require_same(certificates, certificate)
        certificates[0].check_compatible(model=model, preprocessing=preprocessing)
        gallery: Gallery = store_class(record.store)(folder, certificates)
        return gallery

    @classmethod
    @abstractmethod
    def prepare(
        cls, folder: Path, certificates: tuple[AnyCertificate, ...], identity: str | None, **options: Any
    ) -> None:
        """Turn a folder that holds the certificates into an empty gallery of this store."""

    @property
    def certificate(self) -> AnyCertificate:
        """The certificate by which `search` and `within` decide."""
        return self.certificates[0]

    @property
    @abstractmethod
    def identity(self) -> str | None:
        """The metadata column that names the identity of an item; None where its id does."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __contains__(self, name: object) -> bool: ...

    def __repr__(self) -> str:
        tasks = " and ".join(certificate.task for certificate in self.certificates)
        return f"Gallery({str(self.folder)!r}, {len(self)} items, {tasks})"

    @abstractmethod
    def refresh(self) -> None:
        """Show the changes that other processes have made."""

    def close(self) -> None:  # noqa: B027  (most stores hold nothing)
        """Release resources of the store, such as a connection."""

    @abstractmethod
    def add(self, vectors: EmbeddingsLike, ids: Sequence[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Add vectors (N, E) under new ids; all of them, or after an error none.

        metadata  a column of N values for each name, or an Arrow table; the first vectors decide names and types
        """

    @abstractmethod
    def remove(self, ids: Sequence[str]) -> None:
        """Remove items, all or after an error none."""

    @abstractmethod
    def vectors(self, ids: Sequence[str]) -> NDArray[np.float32]:
        """(N, E) the stored vectors of items."""

    @abstractmethod
    def names(self, ids: Sequence[str]) -> list[str]:
        """The identity of each item: its value in the column `identity`, or its id."""

    @abstractmethod
    def items(self) -> Any:
        """Ids and metadata of all items, an Arrow table in the order in which they were added."""

    @abstractmethod
    def find_nearest(self, queries: GalleryQueries, k: int) -> Iterator[SearchHits]:
        """The k closest items of every query, closest first, equal scores by id."""

    @abstractmethod
    def find_within(self, queries: GalleryQueries, threshold: float) -> Iterator[SearchHits]:
        """All items of every query that are closer than a threshold, in the same order."""

    @abstractmethod
    def hit_identities(self, hits: SearchHits) -> list[str]:
        """The identities of the hits of a query."""

    @abstractmethod
    def count_identities(self) -> int:
        """Number of distinct identities of the items."""

    def search(self, queries: EmbeddingsLike, k: int = 10) -> list[list[Match]]:
        """The k closest items of every query (Q, E), closest first, equal scores by id."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise EquimetricError(f"k is {k!r}; give a whole number of at least 1")
        results = self.find_nearest(self.comparison.convert_queries(queries), k)
        return [_matches(hits, self.certificate) for hits in results]

    def within(self, queries: EmbeddingsLike, threshold: float | None = None) -> list[list[Match]]:
        """All items closer than a threshold, by default the certificate's: closest first, equal scores by id."""
        limit = self.certificate.threshold if threshold is None else float(threshold)
        if not np.isfinite(limit):
            raise EquimetricError(f"the threshold is {limit}; give a finite number, or leave it to the certificate")
        results = self.find_within(self.comparison.convert_queries(queries), limit)
        return [_matches(hits, self.certificate) for hits in results]

    def identify(self, queries: EmbeddingsLike) -> list[Identity]:
        """The identity of each query, or none, by the rule and threshold of the certificate of identification."""
        certificate = self._certificate(IdentificationCertificate)
        self._check_identities(certificate)
        results = self.find_nearest(self.comparison.convert_queries(queries), certificate.protocol.depth)
        return [
            _choose_identity(_matches(hits, certificate), self.hit_identities(hits)) if hits.ids else STRANGER
            for hits in results
        ]

    def verify(self, queries: EmbeddingsLike, items: Sequence[str] | EmbeddingsLike) -> NDArray[np.bool_]:
        """(P,) whether each query and the item beside it, an id or a gallery vector, are accepted as the same."""
        certificate = self._certificate(Certificate)
        converted = self.comparison.convert_queries(queries)
        if isinstance(items, Tensor | np.ndarray) and items.ndim == 2:
            vectors = self.comparison.convert_items(items, "items")
        else:
            vectors = torch.from_numpy(self.vectors(list(items)))
        if len(vectors) != len(converted):
            raise EquimetricError(
                f"there are {len(converted)} queries and {len(vectors)} items; give one item for each"
            )
        accepted: NDArray[np.bool_] = certificate.accepts(self.comparison.scores(converted.vectors, vectors)).numpy()
        return accepted

    def save(self, folder: str | Path, *, store: str = EMBEDDED, **options: Any) -> Gallery:
        """Write a copy, without removed rows, to a new folder and maybe another store, and open it."""
        folder = Path(folder)
        if folder.exists():
            raise EquimetricError(f"{str(folder)!r} exists; give a new folder")
        with unfinished_folder(folder) as unfinished:
            copy = Gallery.create(unfinished, self.certificates, identity=self.identity, store=store, **options)
            table = self.items()
            for rows in slices(table.num_rows, ROWS_PER_COPY):
                part = table.slice(rows.start, rows.stop - rows.start)
                ids = part.column(ID).to_pylist()
                copy.add(self.vectors(ids), ids, part.drop_columns([ID]))
            record = ModelRecord.read(self.folder)
            if record is not None:
                record.move(self.folder, folder).write(unfinished)
            copy.close()
            unfinished.rename(folder)
        return Gallery.open(folder)

    def check(self) -> GalleryCheck:
        """Compare all files with the checksums that were written with them; only an embedded gallery has some."""
        raise EquimetricError("this gallery's items are kept by a database, which has to check its own files")

    def _certificate(self, kind: type[Any]) -> Any:
        """The certificate of a task."""
        certificate = next((item for item in self.certificates if isinstance(item, kind)), None)
        if certificate is None:
            task = "verification" if kind is Certificate else "identification"
            raise EquimetricError(
                f"this gallery was made under a certificate of {self.certificate.task}, whose threshold promises "
                f"nothing for {task}; calibrate one of {task} and make a gallery under it"
            )
        return certificate

    def _check_identities(self, certificate: IdentificationCertificate) -> None:
        count = self.count_identities()
        if certificate.protocol.by == "mean" and count < len(self):
            raise EquimetricError(
                "this certificate names by class means, and the gallery has several items of one identity; add one "
                "item for each, the mean of its vectors"
            )
        if count > certificate.identities:
            warnings.warn(
                f"the gallery has {count} identities, and its certificate holds for {certificate.identities}: more "
                "strangers than promised will be accepted; calibrate for this size",
                EquimetricWarning,
                stacklevel=3,
            )

    def _check_new(self, table: Any, in_use: Sequence[str]) -> None:
        """Raise an error where ids of a table of new items are in use, or identities have no names."""
        if in_use:
            raise EquimetricError(
                f"the id {quote(in_use[0])} is in the gallery; remove that item first, or give another id"
            )
        if self.identity is None:
            return
        if self.identity not in table.column_names:
            raise EquimetricError(f"the metadata lack {self.identity!r}, which names identities here; give that column")
        column = table.column(self.identity)
        if not pa.types.is_string(column.type) or column.null_count:
            raise EquimetricError(f"{self.identity!r} names identities here, and not all of its values are strings")


def check_item_ids(ids: Sequence[str], missing: Sequence[str]) -> None:
    """Raise an error where ids are no list of strings, or some are missing in the gallery."""
    if isinstance(ids, str):
        raise EquimetricError("ids are one string; give a list of strings")
    invalid = next((item for item in ids if not isinstance(item, str)), None)
    if invalid is not None:
        raise EquimetricError(f"the id {quote(invalid)} is no string; give strings, such as str(number)")
    if missing:
        count_text = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        raise EquimetricError(f"{quote(missing[0])}{count_text} not in the gallery; give ids of its items")


def _is_available(folder: Path) -> bool:
    """Whether a folder is empty, or holds only leftovers of a killed `create`."""
    leftovers = {f"{task}.json" for task in KINDS}
    return folder.is_dir() and all(file.name[0] == "." or file.name in leftovers for file in folder.iterdir())


def _matches(hits: SearchHits, certificate: AnyCertificate) -> list[Match]:
    accepted = certificate.accepts(np.array(hits.scores)).tolist()
    return [Match(*values) for values in zip(hits.ids, hits.scores, accepted, strict=True)]


def _choose_identity(matches: list[Match], names: list[str]) -> Identity:
    """The majority among the accepted, ties by the closest; of one item, its own."""
    accepted = [(match, name) for match, name in zip(matches, names, strict=True) if match.accepted]
    if not accepted:
        return STRANGER
    votes = Counter(name for _, name in accepted)
    # The closest come first, and max keeps the first of equals.
    closest, name = max(accepted, key=lambda pair: votes[pair[1]])
    return Identity(name, closest.id, closest.score)
