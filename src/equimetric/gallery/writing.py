"""Changes of a gallery: new data are written to disk first, then the manifest that refers to them.

A kill at any moment leaves the last manifest and its data intact. Leftovers are removed when the gallery is next
opened, or overwritten.
"""

import contextlib
import fcntl
import io
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import StorageError
from equimetric.files import explain_write_error, sweep, write_atomically
from equimetric.gallery.array_files import append_rows, truncate_rows
from equimetric.gallery.block_checksums import extend_checksums
from equimetric.gallery.codes import ItemQuantizer, choose_balance, choose_scale, encode
from equimetric.gallery.items import write_part
from equimetric.gallery.manifest import REMOVED, Manifest
from equimetric.gallery.snapshot import Snapshot
from equimetric.ops.blocks import slices

__all__ = ["append", "remove_rows", "sweep_leftovers", "write_lock"]

GENERATED_FILES = re.compile(r"(codes|residuals|items|removed)-(\d+|None)\.\w+")
"""Names of files that a manifest replaces."""
LOCK = ".lock"
ROWS_PER_CODING = 2**15
"""Rows that are coded at a time, in float64."""


@contextlib.contextmanager
def write_lock(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a gallery for writing; yields False where another writer holds the lock and `wait` is False."""
    with _explain_errors(folder):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        locked = True
    except BlockingIOError:
        locked = False
    try:
        yield locked
    finally:
        os.close(descriptor)


def append(before: Snapshot, items: Tensor, table: Any) -> Manifest:
    """Add items (N, E) with their ids and metadata; returns the new manifest. The caller holds the lock."""
    folder, old, comparison = before.folder, before.manifest, before.comparison
    with _explain_errors(folder):
        quantizer = _fit_quantizer(before, items)
        same_scale = old.common is not None and quantizer.scale == old.common.scale
        new = old.next(rows=old.rows + len(items), common=quantizer, codes=old.codes if same_scale else old.version + 1)
        sources = [items] if same_scale else [*before.all_vectors(), items]
        codes, residuals = _encode_all([source[:, : comparison.columns] for source in sources], quantizer)
        new_rows: dict[str, tuple[int, NDArray[Any]]] = {
            "vectors": (old.rows, items.numpy()),
            "codes": (new.rows - len(codes), codes),
            "residuals": (new.rows - len(codes), residuals),
        }
        if comparison.has_shift:
            new_rows["shifts"] = old.rows, comparison.shifts(items).float().numpy()
        for name, (first, rows) in new_rows.items():
            append_rows(folder / new.numbers[name], first, rows)
        new = replace(new, checksums={**old.checksums, **_extend_all_checksums(old, new_rows)})
        new = replace(new, parts=write_part(folder, new.version, table, before.items, old.parts))
        new.write(folder)
        return new


def remove_rows(before: Snapshot, rows: NDArray[np.int64]) -> Manifest:
    """Mark rows as removed; returns the new manifest. The caller holds the lock."""
    file, buffer = f"removed-{before.manifest.version + 1}.npy", io.BytesIO()
    np.save(buffer, np.union1d(np.flatnonzero(~before.live), rows), allow_pickle=False)
    checksums = {**before.manifest.checksums, REMOVED: (zlib.crc32(buffer.getvalue()),)}
    new = before.manifest.next(removed=file, checksums=checksums)
    with _explain_errors(before.folder):
        write_atomically(before.folder / file, buffer.getvalue())
        new.write(before.folder)
    return new


def sweep_leftovers(folder: Path, manifest: Manifest, widths: dict[str, int]) -> None:
    """Remove leftovers of an interrupted write; `widths` are the bytes per row of each array file."""
    sweep(folder)
    for file in folder.iterdir():
        if GENERATED_FILES.fullmatch(file.name) and file.name not in manifest.files:
            file.unlink(missing_ok=True)
    for name, width in widths.items():
        truncate_rows(folder / manifest.numbers[name], manifest.rows * width)


def _extend_all_checksums(old: Manifest, new_rows: dict[str, tuple[int, NDArray[Any]]]) -> dict[str, tuple[int, ...]]:
    """The checksums of files after appending rows; none where those of earlier rows are unknown."""
    return {
        name: extend_checksums(old.checksums.get(name, ()) if first else (), first, rows)
        for name, (first, rows) in new_rows.items()
        if not first or name in old.checksums
    }


def _fit_quantizer(before: Snapshot, items: Tensor) -> ItemQuantizer:
    """The quantizer of all codes including those of these items; a new scale where the old one does not fit."""
    comparison, old = before.comparison, before.manifest.common
    columns = items[:, : comparison.columns]
    balance = choose_balance(columns, comparison.columns > comparison.dimension) if old is None else old.balance
    quantizer = ItemQuantizer(0.0, balance, 0.0, 0.0) if old is None else old
    largest, length, shift = 0.0, quantizer.length, quantizer.shift
    for rows in slices(len(items), ROWS_PER_CODING):
        balanced = quantizer.balance_items(columns[rows])
        largest = max(largest, float(balanced.abs().max()))
        length = max(length, float(balanced.norm(dim=1).max()))
        if comparison.has_shift:
            shift = max(shift, float(comparison.shifts(items[rows]).abs().max()))
    return ItemQuantizer(choose_scale(largest, None if old is None else old.scale), balance, length, shift)


def _encode_all(sources: list[Tensor], quantizer: ItemQuantizer) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes and residuals of all rows of all sources, computed in chunks."""
    coded = [
        encode(quantizer.balance_items(source[rows]), quantizer.scale)
        for source in sources
        for rows in slices(len(source), ROWS_PER_CODING)
    ]
    return torch.cat([codes for codes, _ in coded]).numpy(), torch.cat([residuals for _, residuals in coded]).numpy()


@contextlib.contextmanager
def _explain_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the gallery {str(folder)!r} cannot be written ({explain_write_error(error)}) and is as it was before; "
            "free space, or make the folder writable"
        ) from None
