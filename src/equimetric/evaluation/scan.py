"""The scan: every query against the whole gallery, one tile of rows at a time, fed to collectors.

Memory is bounded by the tile (block × gallery), never by the square of the data. A collector takes from a tile what
its metrics need; several collectors share one scan.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from equimetric.evaluation.exact import FixedPoint, exact_products, exact_rows, float64_products, slices

__all__ = ["Collector", "Comparison", "Tile", "default_block_rows", "scan"]

TILE_BYTES = 2**26
LEAST_BLOCK_ROWS = 64
"""Below this many rows a matrix product waits for memory, however large the gallery."""


class Comparison:
    """Queries seen against a gallery; with `leave_one_out` the gallery is the query set itself, less the query."""

    def __init__(self, queries: Tensor, gallery: Tensor | None = None) -> None:
        self.leave_one_out = gallery is None
        self.queries = FixedPoint(queries)
        self.gallery = self.queries if gallery is None else FixedPoint(gallery)
        self._longest = self.gallery.length.max()

    def similarity(self, rows: slice) -> Tensor:
        """Inner products of consecutive queries with the gallery, (rows, G), in the embeddings' own precision."""
        similarity = torch.mm(self.queries.vectors[rows], self.gallery.vectors.T)
        if self.leave_one_out:
            similarity.diagonal(int(rows.start)).fill_(-torch.inf)
        return similarity

    def tolerance(self, rows: slice | Tensor, dtype: torch.dtype) -> Tensor:
        """How far apart two similarities computed in `dtype` must be for their order to be certain, (rows, 1).

        A sum of D products is rounded D times, each time by at most half an epsilon of ‖q‖·‖g‖. Long sums are added in
        parts and their errors mostly cancel: they stay below 16√D of these steps, twice the worst that was found.
        """
        dimension = self.queries.vectors.shape[1]
        steps = min(dimension, 16 * math.sqrt(dimension))
        error = steps * torch.finfo(dtype).eps / 2 * self._longest * self.queries.length[rows]
        return 2 * error[:, None]

    def exact_rows(self, rows: Tensor) -> Tensor:
        """As `similarity`, without rounding, for any rows: (len(rows), G) float64."""
        similarity = exact_rows(self.queries, self.gallery, rows)
        if self.leave_one_out:
            similarity.scatter_(1, rows[:, None], -torch.inf)
        return similarity

    def float64_products(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The similarity of P pairs (query, gallery item): (P,) float64."""
        return float64_products(self.queries, self.gallery, rows, columns)

    def exact_products(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The similarity, without rounding, of P pairs (query, gallery item): (P,) float64."""
        return exact_products(self.queries, self.gallery, rows, columns)


@dataclass(frozen=True)
class Tile:
    """Some consecutive queries against the whole gallery; a query's similarity to itself is −∞ if it is left out."""

    comparison: Comparison
    rows: slice
    similarity: Tensor


class Collector(Protocol):
    """Takes what it needs from each tile; tiles come in the order of the queries, each query once."""

    def collect(self, tile: Tile) -> None:
        """Read one tile; its similarities are shared with other collectors and must not be changed."""


def scan(
    comparison: Comparison, collectors: Iterable[Collector], *, block_rows: int | None = None, progress: bool = False
) -> None:
    """Feed every tile of the comparison to every collector."""
    collectors = tuple(collectors)
    with torch.no_grad(), _full_precision(comparison.queries.vectors.device):
        for rows in _blocks(comparison, block_rows, progress):
            tile = Tile(comparison, rows, comparison.similarity(rows))
            for collector in collectors:
                collector.collect(tile)


def default_block_rows(comparison: Comparison) -> int:
    """As many rows as keep a tile within 64 MB, but enough for a fast product."""
    row_bytes = len(comparison.gallery) * comparison.gallery.vectors.element_size()
    return max(LEAST_BLOCK_ROWS, TILE_BYTES // row_bytes)


def _blocks(comparison: Comparison, block_rows: int | None, progress: bool) -> Iterable[slice]:
    step = block_rows or default_block_rows(comparison)
    blocks = slices(len(comparison.queries), step)
    if not progress:
        return blocks
    from equimetric.data.progress import track

    return track(blocks, "comparing", len(blocks))


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """Keep the caller's autocast and reduced-precision (TF32, bfloat16) products out of the measurement."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
