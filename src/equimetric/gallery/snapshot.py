"""The rows of a gallery at one commit: searches read a snapshot, unaffected by concurrent writes."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import DamagedFileError
from equimetric.gallery.array_files import VectorFile, map_rows
from equimetric.gallery.comparison import CertifiedComparison
from equimetric.gallery.items import ItemTable
from equimetric.gallery.manifest import Manifest
from equimetric.gallery.tiles import CodedItems, FloatItems

__all__ = ["Snapshot"]


class Snapshot:
    """Opens the files of a manifest; arrays are memory-mapped, so opening is instant.

    live   (rows,) bool, which rows were not removed
    items  their ids and metadata
    """

    def __init__(self, folder: Path, manifest: Manifest, comparison: CertifiedComparison) -> None:
        self.folder, self.manifest, self.comparison = folder, manifest, comparison
        self.items = ItemTable(folder, manifest.parts)
        self.live: NDArray[np.bool_] = np.ones(manifest.rows, bool)
        if manifest.removed is not None:
            self.live[self._read_removed(folder / manifest.removed)] = False
        self.count = int(np.count_nonzero(self.live))
        if manifest.rows:
            self._reader = VectorFile(self._file("vectors"), manifest.rows, comparison.width)
            self.codes = self._map_codes()

    @cached_property
    def floats(self) -> FloatItems:
        """The items as vectors, mapped."""
        assert self.manifest.common is not None
        vectors = map_rows(self._file("vectors"), self.manifest.rows, (self.comparison.width,), np.float32)
        return FloatItems(vectors, self.codes.shifts, self.manifest.common)

    @cached_property
    def identities(self) -> Any:
        """The identity of every row, an Arrow array of strings."""
        name = self.manifest.identity
        return self.items.ids if name is None else self.items.column(name).combine_chunks()

    @cached_property
    def identity_count(self) -> int:
        """Number of distinct identities of the live rows."""
        return len(self.identities.filter(pa.array(self.live)).unique()) if self.count else 0

    def read_vectors(self, rows: NDArray[np.int64]) -> Tensor:
        """(R, E) float32 vectors of rows (R,) in any order."""
        if not len(rows):
            return torch.empty(0, self.comparison.width)
        if (rows[1:] > rows[:-1]).all():
            return torch.from_numpy(self._reader.read(rows))
        ascending, inverse = np.unique(rows, return_inverse=True)
        return torch.from_numpy(self._reader.read(ascending))[torch.from_numpy(inverse)]

    def all_vectors(self) -> list[Tensor]:
        """The vectors of all rows, mapped; none before the first."""
        return [torch.from_numpy(self.floats.vectors)] if self.manifest.rows else []

    def _read_removed(self, file: Path) -> NDArray[np.int64]:
        try:
            removed: NDArray[np.int64] = np.load(file, allow_pickle=False)
            if removed.max() < self.manifest.rows:
                return removed
            problem = f"it names row {removed.max()} of {self.manifest.rows}"
        except (EOFError, ValueError) as error:
            problem = str(error)
        raise DamagedFileError(f"{file} is damaged ({problem})", "restore it from a copy")

    def _map_codes(self) -> CodedItems:
        assert self.manifest.common is not None
        rows = self.manifest.rows
        codes = map_rows(self._file("codes"), rows, (self.comparison.columns,), np.int8)
        residuals = map_rows(self._file("residuals"), rows, (), np.float32)
        shifts = map_rows(self._file("shifts"), rows, (), np.float32) if self.comparison.has_shift else None
        return CodedItems(codes, residuals, shifts, self.manifest.common)

    def _file(self, name: str) -> Path:
        return self.folder / self.manifest.numbers[name]
