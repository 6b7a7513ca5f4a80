"""Tiles and strips: the blocks of a similarity matrix that a scan reads."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from equimetric.evaluation.engine.similarity import ALL, SimilarityMatrix

__all__ = ["Strip", "Tile"]


@dataclass(frozen=True)
class Tile:
    """Some queries against the gallery, or against a range of it.

    rows        (B,) indices of the queries; queries of one class are adjacent, within a tile and across tiles
    similarity  (B, K), larger is closer; −∞ for excluded pairs, such as a query and itself; the next tile
                overwrites it
    coarse      the products are of vectors rounded to bfloat16, certain up to `SimilarityMatrix.coarse_tolerance`
    columns     the K gallery items; where they are not all, the next tiles have the same rows and the items that follow
    number      index in the scan, by which collectors order their outputs, whichever process read the tile
    """

    matrix: SimilarityMatrix
    rows: Tensor
    similarity: Tensor
    coarse: bool = False
    columns: slice = field(default_factory=lambda: ALL)
    number: tuple[int, int] = (0, 0)

    @property
    def items(self) -> Tensor:
        """(K,) indices of the gallery items."""
        first, stop, _ = self.columns.indices(len(self.matrix.gallery))
        return torch.arange(first, stop, device=self.rows.device)

    @property
    def is_whole(self) -> bool:
        """Whether it has all gallery items."""
        return self.similarity.shape[1] == len(self.matrix.gallery)

    @property
    def is_first(self) -> bool:
        """Whether it has the first gallery items."""
        return not self.columns.start

    @property
    def is_last(self) -> bool:
        """Whether it has the last gallery items, so that all pairs of its rows are known."""
        return self.columns.stop in (None, len(self.matrix.gallery))

    def distance(self) -> Tensor:
        """Distances (B, K) in a new tensor; +∞ for excluded pairs."""
        return self.matrix.distance(self.similarity, self.rows)

    def select_rows(self, which: Tensor | slice) -> "Tile":
        """Some of the tile's rows."""
        return Tile(self.matrix, self.rows[which], self.similarity[which], self.coarse, self.columns, self.number)


@dataclass(frozen=True)
class Strip:
    """Some queries of one set against themselves and later ones, in scan order.

    rows        range of the queries in `SimilarityMatrix.order`; queries of one class are adjacent there
    columns     range of the items in the same order: from the first row on, or from an index after the last one
    similarity  (rows, columns), as in a tile
    """

    matrix: SimilarityMatrix
    rows: slice
    columns: slice
    similarity: Tensor
    number: tuple[int, int] = (0, 0)

    @property
    def num_own_columns(self) -> int:
        """Number of columns that are the rows themselves: all rows, or none."""
        return len(range(self.columns.start, self.rows.stop))

    @property
    def queries(self) -> Tensor:
        """(rows,) indices of the queries."""
        return self.matrix.order[self.rows]

    @property
    def items(self) -> Tensor:
        """(columns,) indices of the items they are compared with."""
        return self.matrix.order[self.columns]
