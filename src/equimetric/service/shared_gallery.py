"""One thread's view of a gallery that other threads and processes may change."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from equimetric.deployment.indexing import FILE
from equimetric.gallery import Gallery
from equimetric.gallery.items import ID
from equimetric.gallery.manifest import MANIFEST

__all__ = ["SharedGallery"]


class SharedGallery:
    """Opens a gallery and reopens it after changes; for use by a single thread."""

    def __init__(self, folder: Path) -> None:
        self.gallery = Gallery.open(folder)
        self._manifest = folder / MANIFEST
        self._stamp: tuple[int, ...] | None = None
        self._columns: tuple[str, ...] = ()
        self._files: Any = None

    def refresh(self) -> Gallery:
        """The gallery as it is now; takes no time where nothing has changed."""
        stamp = self._read_stamp()
        if stamp is None or stamp != self._stamp:
            # Read before the gallery is, so that a change in between is seen by the next call.
            self._stamp = stamp
            self._files = None
            self.gallery.refresh()
        return self.gallery

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the metadata columns, which the first items decide; none before them."""
        if not self._columns and len(self.gallery):
            self._columns = tuple(name for name in self.gallery.items().column_names if name != ID)
        return self._columns

    def image_file(self, item: str) -> Path | None:
        """Path of the image of an item when it was indexed; None where unknown."""
        if FILE not in self.columns:
            return None
        if self._files is None:
            self._files = self.gallery.items().select([ID, FILE])
        row = pc.index(self._files.column(ID), item).as_py()
        path = None if row < 0 else self._files.column(FILE)[row].as_py()
        return None if path is None else Path(path)

    def _read_stamp(self) -> tuple[int, ...] | None:
        """A stamp that changes with every commit, which replaces the manifest; None for a store without one."""
        try:
            status = self._manifest.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
