"""A gallery that other threads and processes change, as one thread sees it."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from equimetric.deployment.indexing import FILE
from equimetric.gallery import Gallery
from equimetric.gallery.items import ID
from equimetric.gallery.manifest import MANIFEST

__all__ = ["SharedGallery"]


class SharedGallery:
    """Opens a gallery, and again whatever has changed since; for one thread alone."""

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
        """Where the image of an item was indexed; None where that is not known."""
        if FILE not in self.columns:
            return None
        if self._files is None:
            self._files = self.gallery.items().select([ID, FILE])
        row = pc.index(self._files.column(ID), item).as_py()
        found = None if row < 0 else self._files.column(FILE)[row].as_py()
        return None if found is None else Path(found)

    def _read_stamp(self) -> tuple[int, ...] | None:
        """What changes with every commit, which replaces the manifest; None for a store without one."""
        try:
            found = self._manifest.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
