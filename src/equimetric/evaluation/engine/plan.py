"""What a scan reads, and in which blocks: decided once, before the first of them, and the same for all processes.

Bands of queries are compared with the whole gallery, or where every pair is computed once with themselves and all later
queries. A band that would not fit into a tile is compared with some columns at a time. Bits of similarities depend on
the shape of the blocks, so the plan depends on the data alone and not on which process reads which bands.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.products import MIN_BLOCK_ROWS
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.ops.blocks import TILE_BYTES, slices

__all__ = ["ScanPlan", "plan_bands"]

CACHE_BYTES = 2**24
QUICK_BLOCK_ROWS = 256
MIN_SYMMETRIC_ROWS = 2500
"""Of fewer queries, half of the products take less time than merging what strips find."""
MIN_STRIPS = 16
"""With few strips, many pairs are computed on both sides of the diagonal."""
BAND_ROWS = 1024
"""Queries compared with some columns at a time: each pass over gallery vectors, from disk perhaps, serves them all."""
MIN_COLUMNS = 1024
COLUMN_STEP = 64
GATHERED_BYTES = 2**32
"""Up to this size, vectors are gathered in scan order to compute every pair once; larger ones are read in their own."""


@dataclass(frozen=True)
class ScanPlan:
    """Bands of queries, each a range of the scan's order, and how they are compared.

    columns    number of columns a band is compared with at a time
    items      number of gallery items G
    symmetric  every pair of one set is computed once: see `tiles.Strip`
    coarse     products are of vectors rounded to bfloat16
    """

    bands: tuple[slice, ...]
    columns: int
    items: int
    symmetric: bool = False
    coarse: bool = False

    def blocks(self, band: int) -> list[slice]:
        """The columns of a band, as many at a time as a tile has."""
        first, width = self._columns_of(self.bands[band])
        return [slice(first + block.start, first + block.stop) for block in slices(self.items - first, width)]

    def _columns_of(self, rows: slice) -> tuple[int, int]:
        """The first column of a band, and the columns of a tile: at least its own rows, where it begins with them."""
        first = rows.start if self.symmetric else 0
        return first, min(max(self.columns, rows.stop - rows.start if self.symmetric else 0), self.items - first)

    def count_tiles(self, bands: range) -> int:
        """Number of tiles in these bands."""
        shapes = (self._columns_of(self.bands[band]) for band in bands)
        return sum(-((first - self.items) // width) for first, width in shapes)

    def buffer(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for the largest tile: fresh memory would cost as much as a fifth of the product that fills it."""
        max_entries = max((rows.stop - rows.start) * self._columns_of(rows)[1] for rows in self.bands)
        return torch.empty(max_entries, dtype=torch.bfloat16 if self.coarse else dtype, device=device)

    def split_bands(self, count: int) -> list[range]:
        """Ranges of consecutive bands with about equally many pairs, at most `count`."""
        pairs = [(rows.stop - rows.start) * (self.items - self._columns_of(rows)[0]) for rows in self.bands]
        total, ranges, start, cumulative = sum(pairs), list[range](), 0, 0
        for band, num_pairs in enumerate(pairs):
            cumulative += num_pairs
            if cumulative * count >= total * (len(ranges) + 1):
                ranges.append(range(start, band + 1))
                start = band + 1
        return ranges


def plan_bands(
    matrix: SimilarityMatrix, readers: Sequence[Collector], block_rows: int | None, *, coarse: bool
) -> ScanPlan:
    """The plan that all readers accept."""
    queries, items = len(matrix.order), len(matrix.gallery)
    in_parts = all(collector.accepts_columns for collector in readers)
    worthwhile = block_rows is not None or queries >= MIN_SYMMETRIC_ROWS
    if not coarse and worthwhile and _use_strips(matrix, readers):
        bands, columns = strip_bands(matrix, block_rows, in_parts)
        if len(bands) > 1:
            return ScanPlan(tuple(bands), columns, items, symmetric=True)
    rows, columns = _tile_shape(matrix, block_rows, in_parts)
    return ScanPlan(tuple(slices(queries, rows)), columns, items, coarse=coarse)


def _use_strips(matrix: SimilarityMatrix, readers: Sequence[Collector]) -> bool:
    bytes_gathered = len(matrix.gallery) * matrix.gallery.vectors.shape[1] * matrix.dtype.itemsize
    possible = matrix.symmetric and not matrix.has_exact_products and bytes_gathered <= GATHERED_BYTES
    return possible and bool(readers) and all(collector.accepts_strips() for collector in readers)


def _tile_shape(matrix: SimilarityMatrix, block_rows: int | None, in_parts: bool) -> tuple[int, int]:
    """Rows and columns of a tile: whole rows where 64 MB hold enough of them, or where collectors need these."""
    item_bytes = matrix.dtype.itemsize
    row_bytes = len(matrix.gallery) * item_bytes
    fits = (block_rows or MIN_BLOCK_ROWS) * row_bytes <= TILE_BYTES
    # Vectors that are converted whenever they are read should serve as many queries as possible.
    if not in_parts or (fits and not matrix.converts_on_read):
        return block_rows or _whole_rows(row_bytes), len(matrix.gallery)
    rows = block_rows or BAND_ROWS
    columns = max(MIN_COLUMNS, TILE_BYTES // (rows * item_bytes)) // COLUMN_STEP * COLUMN_STEP
    return rows, min(columns, len(matrix.gallery))


def _whole_rows(row_bytes: int) -> int:
    """As many rows as keep a tile in the cache, or within 64 MB where fewer would make a slow product."""
    quick = max(QUICK_BLOCK_ROWS, CACHE_BYTES // row_bytes)
    return max(MIN_BLOCK_ROWS, min(quick, TILE_BYTES // row_bytes))


def strip_bands(matrix: SimilarityMatrix, block_rows: int | None, in_parts: bool) -> tuple[list[slice], int]:
    """The row ranges of all strips, and their columns. Shorter strips have more rows: all fill the same buffer."""
    queries = len(matrix.order)
    rows, columns = _tile_shape(matrix, block_rows, in_parts)
    if block_rows is not None or columns < queries:
        return slices(queries, rows), columns
    max_rows = max(QUICK_BLOCK_ROWS, queries // MIN_STRIPS)
    area = min(rows, max_rows) * queries
    strips, start = list[slice](), 0
    while start < queries:
        num_rows = min(area // (queries - start), max_rows) // MIN_BLOCK_ROWS * MIN_BLOCK_ROWS
        strips.append(slice(start, min(start + max(num_rows, MIN_BLOCK_ROWS), queries)))
        start = strips[-1].stop
    return strips, columns
