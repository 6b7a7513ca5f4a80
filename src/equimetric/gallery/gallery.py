"""`Gallery`: vectors with ids and metadata in a folder, searched exactly, decided by the certificate of the folder."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from equimetric.calibration.certificate import Certificate
from equimetric.calibration.identification import IdentificationCertificate
from equimetric.errors import EquimetricError, EquimetricWarning, StorageError, shown
from equimetric.evaluation.engine.inputs import EmbeddingsLike
from equimetric.files import make_folder, unfinished_folder
from equimetric.gallery.certificates import KINDS, AnyCertificate, check_certificates, load_certificates, require_same
from equimetric.gallery.comparison import CertifiedComparison
from equimetric.gallery.items import ID, make_table
from equimetric.gallery.manifest import Manifest
from equimetric.gallery.model_record import ModelRecord
from equimetric.gallery.search import Found, search_nearest, search_within
from equimetric.gallery.snapshot import Snapshot
from equimetric.gallery.writing import append, remove_rows, sweep_leftovers, write_lock
from equimetric.ops.blocks import slices

__all__ = ["Gallery", "Identity", "Match"]

COPIED_ROWS = 2**16
"""Rows that `save` copies at a time."""
ATTEMPTS = 5
"""Another process may replace files between reading the manifest and opening them."""


class Match(NamedTuple):
    """An item that a query found.

    score     what the certificate compares with its threshold: a distance, or with a cohort a score
    accepted  whether the certificate accepts it as the same
    """

    id: str
    score: float
    accepted: bool


class Identity(NamedTuple):
    """Who a query is: the identity and its closest item, or None for a stranger."""

    name: str | None
    id: str | None
    score: float | None


STRANGER = Identity(None, None, None)


class Gallery:
    """An exact, append-only store of vectors on disk: `Gallery.open("shop.gallery").search(queries, k=5)`.

    Searches read int8 codes that bound every similarity, and the vectors of the few items that the bounds leave open;
    results are those of scoring every item in float64. With a cohort, items are the gallery vectors of `Cohort.extend`
    and queries its query vectors.

    Several processes may read and change one gallery: changes are made one after another, and `refresh` shows those of
    other processes. A kill at any moment leaves the last change that was finished.
    """

    def __init__(self, folder: Path, certificates: tuple[AnyCertificate, ...], snapshot: Snapshot) -> None:
        self.folder, self.certificates = folder, certificates
        self._snapshot = snapshot

    @classmethod
    def create(
        cls,
        folder: str | Path,
        certificate: AnyCertificate | Iterable[AnyCertificate],
        *,
        identity: str | None = None,
    ) -> Gallery:
        """Make an empty gallery in a new folder.

        certificate  whose threshold decides, one or one for each task; `search` takes the first
        identity     metadata column that names the identity of an item; by default every id is one
        """
        folder, certificates = Path(folder), check_certificates(certificate)
        if folder.exists() and not _is_free(folder):
            raise EquimetricError(f"{str(folder)!r} exists and is not empty; give a new folder, or open the gallery")
        make_folder(folder)
        for one in certificates:
            one.save(folder / f"{one.task}.json")
        Manifest(tuple(one.task for one in certificates), identity).write(folder)
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
        """Open a gallery; what a killed process left is swept.

        certificate, model, preprocessing  where given, of whoever makes the queries; others than those of the gallery
                                           raise an error
        """
        folder = Path(folder)
        certificates = load_certificates(folder, Manifest.read(folder).tasks)
        if certificate is not None:
            require_same(certificates, certificate)
        certificates[0].require(model=model, preprocessing=preprocessing)
        gallery = cls(folder, certificates, _open_snapshot(folder, CertifiedComparison.of(certificates[0])))
        gallery._sweep()
        return gallery

    @property
    def certificate(self) -> AnyCertificate:
        """The certificate by which `search` and `within` decide."""
        return self.certificates[0]

    @property
    def identity(self) -> str | None:
        """The metadata column that names the identity of an item; None where its id does."""
        return self._snapshot.manifest.identity

    def __len__(self) -> int:
        return self._snapshot.count

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._snapshot.items.find([name], self._snapshot.live)[0] >= 0)

    def __repr__(self) -> str:
        return (
            f"Gallery({str(self.folder)!r}, {len(self)} items, {' and '.join(one.task for one in self.certificates)})"
        )

    def refresh(self) -> None:
        """Show the changes that other processes have made."""
        self._snapshot = _open_snapshot(self.folder, self._snapshot.comparison)

    def add(self, vectors: EmbeddingsLike, ids: Sequence[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Add vectors (N, E) under new ids; all of them, or after an error or a kill none.

        metadata  a column of N values for each name, or an Arrow table; the first vectors decide names and types
        """
        items = self._snapshot.comparison.convert_items(vectors)
        with write_lock(self.folder):
            self.refresh()
            before = self._snapshot
            table = make_table(ids, {} if metadata is None else metadata, len(items), before.items.schema)
            self._check_new(table)
            append(before, items, table)
            self.refresh()
            self._sweep_files()

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items, all or after an error none. Their rows stay in the files; `save` writes a gallery without."""
        with write_lock(self.folder):
            self.refresh()
            remove_rows(self._snapshot, self._rows(ids))
            self.refresh()
            self._sweep_files()

    def search(self, queries: EmbeddingsLike, k: int = 10) -> list[list[Match]]:
        """The k closest items of every query (Q, E), closest first, equal scores by id."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise EquimetricError(f"k is {k!r}; give a whole number of at least 1")
        snapshot = self._snapshot
        found = search_nearest(snapshot, snapshot.comparison.convert_queries(queries), k)
        return [self._matches(one, self.certificate) for one in found]

    def within(self, queries: EmbeddingsLike, threshold: float | None = None) -> list[list[Match]]:
        """All items closer than a threshold, by default the certificate's: closest first, equal scores by id."""
        snapshot, limit = self._snapshot, self.certificate.threshold if threshold is None else float(threshold)
        if not np.isfinite(limit):
            raise EquimetricError(f"the threshold is {limit}; give a finite number, or leave it to the certificate")
        found = search_within(snapshot, snapshot.comparison.convert_queries(queries), limit)
        return [self._matches(one, self.certificate) for one in found]

    def identify(self, queries: EmbeddingsLike) -> list[Identity]:
        """Who each query is, by the rule and threshold of the certificate of identification; or nobody here."""
        certificate = self._certificate(IdentificationCertificate)
        snapshot, protocol = self._snapshot, certificate.protocol
        self._check_identities(snapshot, certificate)
        found = search_nearest(snapshot, snapshot.comparison.convert_queries(queries), protocol.depth)
        return [
            _choose_identity(self._matches(one, certificate), snapshot.identities.take(one.rows).to_pylist())
            if one.rows
            else STRANGER
            for one in found
        ]

    def verify(self, queries: EmbeddingsLike, items: Sequence[str] | EmbeddingsLike) -> NDArray[np.bool_]:
        """(P,) whether each query and the item beside it, an id or a gallery vector, are accepted as the same."""
        certificate = self._certificate(Certificate)
        snapshot = self._snapshot
        asked = snapshot.comparison.convert_queries(queries)
        if isinstance(items, Tensor | np.ndarray) and items.ndim == 2:
            vectors = snapshot.comparison.convert_items(items, "items")
        else:
            vectors = snapshot.read_vectors(self._rows(list(items)))
        if len(vectors) != len(asked):
            raise EquimetricError(f"there are {len(asked)} queries and {len(vectors)} items; give one item for each")
        accepted: NDArray[np.bool_] = certificate.accepts(snapshot.comparison.scores(asked.vectors, vectors)).numpy()
        return accepted

    def vectors(self, ids: Sequence[str]) -> NDArray[np.float32]:
        """(N, E) the stored vectors of items."""
        return self._snapshot.read_vectors(self._rows(ids)).numpy()

    def names(self, ids: Sequence[str]) -> list[str]:
        """The identity of each item: its value in the column `identity`, or its id."""
        names: list[str] = self._snapshot.identities.take(self._rows(ids)).to_pylist() if len(ids) else []
        return names

    def items(self) -> Any:
        """Ids and metadata of all items, an Arrow table in the order in which they were added."""
        if not self._snapshot.manifest.parts:
            return pa.table({ID: pa.array([], pa.string())})
        return self._snapshot.items.table().filter(pa.array(self._snapshot.live))

    def save(self, folder: str | Path) -> Gallery:
        """Write a copy without the removed rows to a new folder, and open it."""
        folder, before = Path(folder), self._snapshot
        if folder.exists():
            raise EquimetricError(f"{str(folder)!r} exists; give a new folder")
        with unfinished_folder(folder) as unfinished:
            copy = Gallery.create(unfinished, self.certificates, identity=before.manifest.identity)
            rows, table = np.flatnonzero(before.live), self.items()
            for some in slices(len(rows), COPIED_ROWS):
                part = table.slice(some.start, some.stop - some.start)
                copy.add(before.read_vectors(rows[some]), part.column(ID).to_pylist(), part.drop_columns([ID]))
            record = ModelRecord.read(self.folder)
            if record is not None:
                record.move(self.folder, folder).write(unfinished)
            unfinished.rename(folder)
        return Gallery.open(folder)

    def _matches(self, found: Found, certificate: AnyCertificate) -> list[Match]:
        accepted = certificate.accepts(np.array(found.scores)).tolist()
        return [Match(*one) for one in zip(found.ids, found.scores, accepted, strict=True)]

    def _rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The rows of ids, all of which are here."""
        if isinstance(ids, str):
            raise EquimetricError("ids are one string; give a list of strings")
        wrong = next((one for one in ids if not isinstance(one, str)), None)
        if wrong is not None:
            raise EquimetricError(f"the id {shown(wrong)} is no string; give strings, such as str(number)")
        wanted = list(dict.fromkeys(ids))
        rows = dict(zip(wanted, self._snapshot.items.find(wanted, self._snapshot.live).tolist(), strict=True))
        missing = [one for one in wanted if rows[one] < 0]
        if missing:
            more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
            raise EquimetricError(f"{shown(missing[0])}{more} not in the gallery; give ids of its items")
        return np.array([rows[one] for one in ids], np.int64)

    def _check_new(self, table: Any) -> None:
        """Raise an error where an id is in use, or identities have no names."""
        ids, identity = table.column(ID).to_pylist(), self._snapshot.manifest.identity
        used = np.flatnonzero(self._snapshot.items.find(ids, self._snapshot.live) >= 0)
        if len(used):
            raise EquimetricError(
                f"the id {shown(ids[used[0]])} is in the gallery; remove that item first, or give another id"
            )
        if identity is None:
            return
        if identity not in table.column_names:
            raise EquimetricError(f"the metadata lack {identity!r}, which names identities here; give that column")
        column = table.column(identity)
        if not pa.types.is_string(column.type) or column.null_count:
            raise EquimetricError(f"{identity!r} names identities here, and not all of its values are strings")

    def _certificate(self, kind: type[Any]) -> Any:
        """The certificate of a task."""
        found = next((one for one in self.certificates if isinstance(one, kind)), None)
        if found is None:
            task, ours = ("verification" if kind is Certificate else "identification"), self.certificate.task
            raise EquimetricError(
                f"this gallery was made under a certificate of {ours}, whose threshold promises nothing for {task}; "
                f"calibrate one of {task} and make a gallery under it"
            )
        return found

    def _check_identities(self, snapshot: Snapshot, certificate: IdentificationCertificate) -> None:
        count = snapshot.identity_count
        if certificate.protocol.by == "mean" and count < snapshot.count:
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

    def _sweep(self) -> None:
        """Remove what a killed process left, unless another one is writing, or the folder is read-only."""
        try:
            with write_lock(self.folder, wait=False) as alone:
                if alone and Manifest.read(self.folder) == self._snapshot.manifest:
                    self._sweep_files()
        except (OSError, StorageError):
            return

    def _sweep_files(self) -> None:
        comparison = self._snapshot.comparison
        widths = {"vectors": 4 * comparison.width, "codes": comparison.columns, "residuals": 4, "shifts": 4}
        sweep_leftovers(self.folder, self._snapshot.manifest, widths)


def _is_free(folder: Path) -> bool:
    """Whether a folder is empty, or holds what a killed `create` left."""
    left = {f"{task}.json" for task in KINDS}
    return folder.is_dir() and all(file.name[0] == "." or file.name in left for file in folder.iterdir())


def _open_snapshot(folder: Path, comparison: CertifiedComparison) -> Snapshot:
    """The state of the manifest at hand."""
    for _ in range(ATTEMPTS):
        try:
            return Snapshot(folder, Manifest.read(folder), comparison)
        except FileNotFoundError as error:
            missing = error
    raise EquimetricError(f"a file of the gallery is missing ({missing}); restore it from a copy, or make it again")


def _choose_identity(found: list[Match], names: list[str]) -> Identity:
    """The majority among the accepted, ties by the closest; of one item, its own."""
    accepted = [(match, name) for match, name in zip(found, names, strict=True) if match.accepted]
    if not accepted:
        return STRANGER
    votes = Counter(name for _, name in accepted)
    # The closest come first, and max keeps the first of equals.
    closest, name = max(accepted, key=lambda one: votes[one[1]])
    return Identity(name, closest.id, closest.score)
