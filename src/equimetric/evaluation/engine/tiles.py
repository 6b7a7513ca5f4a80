"""Tiles and strips of a similarity matrix, and how many rows they have."""

from dataclasses import dataclass

from torch import Tensor

from equimetric.evaluation.engine.similarity import LEAST_BLOCK_ROWS, SimilarityMatrix
from equimetric.ops.blocks import TILE_BYTES, slices

__all__ = ["Strip", "Tile", "default_block_rows", "strip_slices"]

CACHE_BYTES = 2**24
QUICK_BLOCK_ROWS = 256
FEWEST_STRIPS = 16
"""With few strips, many pairs are computed on both sides of the diagonal."""


@dataclass(frozen=True)
class Tile:
    """Some queries against the whole gallery.

    rows        (B,) indices of the queries; queries of one class are adjacent, within a tile and across tiles
    similarity  (B, G), larger is closer; −∞ for excluded pairs, such as a query and itself; the next tile
                overwrites it
    coarse      the products are of vectors rounded to bfloat16, certain up to `SimilarityMatrix.coarse_tolerance`
    """

    matrix: SimilarityMatrix
    rows: Tensor
    similarity: Tensor
    coarse: bool = False

    def distance(self) -> Tensor:
        """Distances (B, G) in a new tensor; +∞ for excluded pairs."""
        return self.matrix.distance(self.similarity, self.rows)

    def part(self, which: Tensor | slice) -> "Tile":
        """Some of the tile's rows."""
        return Tile(self.matrix, self.rows[which], self.similarity[which], self.coarse)

    def recompute(self, which: Tensor) -> "Tile":
        """Some of the tile's rows, computed again in the embeddings' own precision."""
        rows = self.rows[which]
        return Tile(self.matrix, rows, self.matrix.similarity(rows))


@dataclass(frozen=True)
class Strip:
    """Some queries of one set against themselves and all later ones, in scan order.

    rows        range of the queries in `SimilarityMatrix.order`; queries of one class are adjacent there
    similarity  (rows, N − rows.start), as in a tile
    """

    matrix: SimilarityMatrix
    rows: slice
    similarity: Tensor

    @property
    def queries(self) -> Tensor:
        """(rows,) indices of the queries."""
        return self.matrix.order[self.rows]

    @property
    def items(self) -> Tensor:
        """(N − rows.start,) indices of the items they are compared with."""
        return self.matrix.order[self.rows.start :]


def default_block_rows(matrix: SimilarityMatrix) -> int:
    """As many rows as keep a tile in the cache, or within 64 MB where fewer would make a slow product."""
    row_bytes = len(matrix.gallery) * matrix.gallery.vectors.element_size()
    quick = max(QUICK_BLOCK_ROWS, CACHE_BYTES // row_bytes)
    return max(LEAST_BLOCK_ROWS, min(quick, TILE_BYTES // row_bytes))


def strip_slices(matrix: SimilarityMatrix, block_rows: int | None) -> list[slice]:
    """The row ranges of all strips. Shorter strips have more rows, so that all fill the same buffer."""
    queries = len(matrix.queries)
    if block_rows is not None:
        return slices(queries, block_rows)
    most = max(QUICK_BLOCK_ROWS, queries // FEWEST_STRIPS)
    area = min(default_block_rows(matrix), most) * queries
    strips, start = [], 0
    while start < queries:
        rows = min(area // (queries - start), most) // LEAST_BLOCK_ROWS * LEAST_BLOCK_ROWS
        strips.append(slice(start, min(start + max(rows, LEAST_BLOCK_ROWS), queries)))
        start = strips[-1].stop
    return strips
