"""`FileGallery`: the default store, append-only files of the gallery's own folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equimetric.errors import EquimetricError, StorageError
from equimetric.evaluation.engine.inputs import EmbeddingsLike
from equimetric.gallery.block_checksums import GalleryCheck, check_blocks, check_whole
from equimetric.gallery.certificates import AnyCertificate
from equimetric.gallery.comparison import CertifiedComparison, GalleryQueries
from equimetric.gallery.gallery import Gallery, check_item_ids
from equimetric.gallery.items import ID, make_table
from equimetric.gallery.manifest import REMOVED, Manifest
from equimetric.gallery.search import SearchHits, search_nearest, search_within
from equimetric.gallery.snapshot import Snapshot
from equimetric.gallery.writing import append, remove_rows, sweep_leftovers, write_lock

__all__ = ["FileGallery"]

ATTEMPTS = 5
"""Another process may replace files between reading the manifest and opening them."""


class FileGallery(Gallery):
    """Vectors on disk: searches read int8 codes that bound every similarity, then the few vectors that may match.

    Several processes may read and change one gallery: changes are made one after another, and `refresh` shows those of
    other processes. A kill at any moment leaves the last change that was finished. Rows that were removed stay in the
    files; `save` writes a gallery without.
    """

    def __init__(self, folder: Path, certificates: tuple[AnyCertificate, ...]) -> None:
        super().__init__(folder, certificates)
        self._snapshot = _open_snapshot(folder, self.comparison)
        self._sweep()

    @classmethod
    def prepare(
        cls, folder: Path, certificates: tuple[AnyCertificate, ...], identity: str | None, **options: Any
    ) -> None:
        """Write an empty manifest."""
        if options:
            raise EquimetricError(f"an embedded gallery has no option {sorted(options)[0]!r}; leave it out")
        Manifest(tuple(certificate.task for certificate in certificates), identity).write(folder)

    @property
    def identity(self) -> str | None:
        """The metadata column that names the identity of an item; None where its id does."""
        return self._snapshot.manifest.identity

    def __len__(self) -> int:
        return self._snapshot.count

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._snapshot.items.find([name], self._snapshot.live)[0] >= 0)

    def refresh(self) -> None:
        """Show the changes that other processes have made."""
        self._snapshot = _open_snapshot(self.folder, self.comparison)

    def add(self, vectors: EmbeddingsLike, ids: Sequence[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Add vectors (N, E) under new ids; all of them, or after an error or a kill none.

        metadata  a column of N values for each name, or an Arrow table; the first vectors decide names and types
        """
        items = self.comparison.convert_items(vectors)
        with write_lock(self.folder):
            self.refresh()
            before = self._snapshot
            table = make_table(ids, {} if metadata is None else metadata, len(items), before.items.schema)
            names = table.column(ID).to_pylist()
            used = np.flatnonzero(before.items.find(names, before.live) >= 0)
            self._check_new(table, [names[row] for row in used[:1]])
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

    def find_nearest(self, queries: GalleryQueries, k: int) -> Iterator[SearchHits]:
        """The k closest items of every query, closest first, equal scores by id."""
        return search_nearest(self._snapshot, queries, k)

    def find_within(self, queries: GalleryQueries, threshold: float) -> Iterator[SearchHits]:
        """All items of every query that are closer than a threshold, in the same order."""
        return search_within(self._snapshot, queries, threshold)

    def hit_identities(self, hits: SearchHits) -> list[str]:
        """The identities of the hits of a query."""
        names: list[str] = self._snapshot.identities.take(hits.rows).to_pylist()
        return names

    def count_identities(self) -> int:
        """Number of distinct identities of the items."""
        return self._snapshot.identity_count

    def check(self) -> GalleryCheck:
        """Read all files of the gallery, and compare them with the checksums that were written with them."""
        self.refresh()
        manifest, problems, read, skipped = self._snapshot.manifest, list[str](), 0, list[str]()
        for name, width in self._widths().items() if manifest.rows else ():
            file, expected = self.folder / manifest.numbers[name], manifest.checksums.get(name)
            if expected is None:
                skipped.append(file.name)
                continue
            problems += check_blocks(file, manifest.rows, width, expected)
            read += manifest.rows * width
        files = {part.file: part.checksum for part in manifest.parts}
        if manifest.removed is not None:
            files[manifest.removed] = manifest.checksums.get(REMOVED, (None,))[0]
        for name, checksum in files.items():
            if checksum is None:
                skipped.append(name)
                continue
            problems += check_whole(self.folder / name, checksum)
            read += (self.folder / name).stat().st_size
        return GalleryCheck(self.folder, read, tuple(problems), tuple(skipped))

    def _rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The rows of ids, all of which are here."""
        check_item_ids(ids, ())
        unique_ids = list(dict.fromkeys(ids))
        rows = dict(zip(unique_ids, self._snapshot.items.find(unique_ids, self._snapshot.live).tolist(), strict=True))
        check_item_ids(ids, [item for item in unique_ids if rows[item] < 0])
        return np.array([rows[item] for item in ids], np.int64)

    def _sweep(self) -> None:
        """Remove leftovers of a killed process, unless another one is writing, or the folder is read-only."""
        try:
            with write_lock(self.folder, wait=False) as locked:
                if locked and Manifest.read(self.folder) == self._snapshot.manifest:
                    self._sweep_files()
        except (OSError, StorageError):
            return

    def _sweep_files(self) -> None:
        sweep_leftovers(self.folder, self._snapshot.manifest, self._widths())

    def _widths(self) -> dict[str, int]:
        """Bytes per row of each array file."""
        shifts = {"shifts": 4} if self.comparison.has_shift else {}
        return {"vectors": 4 * self.comparison.width, "codes": self.comparison.columns, "residuals": 4, **shifts}


def _open_snapshot(folder: Path, comparison: CertifiedComparison) -> Snapshot:
    """Open the files of the current manifest, retrying where another process replaces them."""
    for _ in range(ATTEMPTS):
        try:
            return Snapshot(folder, Manifest.read(folder), comparison)
        except FileNotFoundError as error:
            last_error = error
    raise EquimetricError(f"a file of the gallery is missing ({last_error}); restore it from a copy, or make it again")
