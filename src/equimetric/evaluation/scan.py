"""The scan: every query against the whole gallery, one tile of rows at a time, fed to collectors.

Memory is bounded by the tile (block × gallery), never by the square of the data. A collector takes from a tile what
its metrics need; several collectors share one scan.
"""

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.comparison import LEAST_BLOCK_ROWS, Comparison
from equimetric.evaluation.exact import slices

__all__ = [
    "TILE_BYTES",
    "Prefilter",
    "Strip",
    "TakesTiles",
    "Tile",
    "default_block_rows",
    "full_precision",
    "scan",
]

Prefilter = Literal["auto", "bfloat16", "none"]

TILE_BYTES = 2**26
CACHE_BYTES = 2**24
QUICK_BLOCK_ROWS = 256
FEWEST_STRIPS = 16
"""With few strips, much is computed on both sides of the diagonal."""
LEAST_MEASURED_ROWS = 10_000
WORTHWHILE_SPEEDUP = 3.0
"""How much faster bfloat16 products must be: candidates are taken again, and exact products may need half the pairs."""


@dataclass(frozen=True)
class Tile:
    """Some queries against the whole gallery.

    rows        (B,) indices of the queries; those of one class follow each other, within a tile and across tiles
    similarity  (B, G), larger is closer; −∞ for pairs that are left out, such as a query and itself; the next tile
                is written over it
    coarse      similarities are of vectors rounded to bfloat16, certain only beyond `Comparison.coarse_tolerance`
    """

    comparison: Comparison
    rows: Tensor
    similarity: Tensor
    coarse: bool = False

    def distance(self) -> Tensor:
        """Distances (B, G) in a tensor of their own; +∞ for pairs that are left out."""
        return self.comparison.distance(self.similarity, self.rows)

    def part(self, which: Tensor | slice) -> "Tile":
        """Some of the tile's rows."""
        return Tile(self.comparison, self.rows[which], self.similarity[which], self.coarse)

    def in_full_precision(self, which: Tensor) -> "Tile":
        """Some of the tile's rows, compared anew in the embeddings' own precision."""
        rows = self.rows[which]
        return Tile(self.comparison, rows, self.comparison.similarity(rows))


@dataclass(frozen=True)
class Strip:
    """Some queries of one set against themselves and all that come after them, in the order of the scan.

    rows        where in `Comparison.order` the queries stand; those of one class follow each other there
    similarity  (rows, N − rows.start), as in a tile
    """

    comparison: Comparison
    rows: slice
    similarity: Tensor

    @property
    def queries(self) -> Tensor:
        """(rows,) indices of the queries."""
        return self.comparison.order[self.rows]

    @property
    def items(self) -> Tensor:
        """(N − rows.start,) indices of what they are compared with."""
        return self.comparison.order[self.rows.start :]


class TakesTiles(Protocol):
    """What a scan feeds; `families.Collector` is one that knows its metrics."""

    reads_tiles: ClassVar[bool]
    accepts_coarse: ClassVar[bool]

    def accepts_strips(self) -> bool:
        """Whether strips will do in place of tiles: every pair of one set once."""

    def prepare(self, comparison: Comparison) -> None:
        """Before the first tile."""

    def collect(self, tile: Tile) -> None:
        """Take from one tile what is needed: read it, do not change it, copy what is kept."""

    def collect_strip(self, strip: Strip) -> None:
        """The same from a strip, if strips are accepted."""

    def finish(self) -> None:
        """After the last tile."""


def scan(
    comparison: Comparison,
    collectors: Iterable[TakesTiles],
    *,
    block_rows: int | None = None,
    prefilter: Prefilter = "none",
    progress: bool = False,
) -> str:
    """Feed every tile of the comparison to every collector that reads tiles, and say in words how it was computed.

    block_rows  queries in a tile; default: as many as keep it within 64 MB
    prefilter   'bfloat16' makes coarse tiles, 'auto' does where that is faster and all collectors accept them
    """
    collectors = tuple(collectors)
    readers = [collector for collector in collectors if collector.reads_tiles]
    with torch.no_grad(), full_precision(comparison.device):
        for collector in collectors:
            collector.prepare(comparison)
        coarse = _is_coarse(comparison, readers, prefilter)
        halves = not coarse and _can_be_halved(comparison, readers, block_rows)
        if halves:
            for strip in _strips(comparison, block_rows, progress):
                for collector in readers:
                    collector.collect_strip(strip)
        elif readers:
            for tile in _tiles(comparison, coarse, block_rows, progress):
                for collector in readers:
                    collector.collect(tile)
        for collector in collectors:
            collector.finish()
    exact = str(comparison.gallery.vectors.dtype).removeprefix("torch.")
    products = f"bfloat16 products, candidates taken again in {exact}" if coarse else f"{exact} products"
    return f"{products}{', each pair once,' if halves else ''} on {comparison.device.type}"


def default_block_rows(comparison: Comparison) -> int:
    """As many rows as keep a tile in the cache, or within 64 MB where fewer would make a slow product."""
    row_bytes = len(comparison.gallery) * comparison.gallery.vectors.element_size()
    quick = max(QUICK_BLOCK_ROWS, CACHE_BYTES // row_bytes)
    return max(LEAST_BLOCK_ROWS, min(quick, TILE_BYTES // row_bytes))


def _strip_slices(comparison: Comparison, block_rows: int | None) -> list[slice]:
    """The rows of all strips: the shorter a strip, the more rows it has, for they all fill one buffer."""
    queries = len(comparison.queries)
    if block_rows is not None:
        return slices(queries, block_rows)
    most = max(QUICK_BLOCK_ROWS, queries // FEWEST_STRIPS)
    area = min(default_block_rows(comparison), most) * queries
    strips, start = [], 0
    while start < queries:
        rows = min(area // (queries - start), most) // LEAST_BLOCK_ROWS * LEAST_BLOCK_ROWS
        strips.append(slice(start, min(start + max(rows, LEAST_BLOCK_ROWS), queries)))
        start = strips[-1].stop
    return strips


def _can_be_halved(comparison: Comparison, readers: Sequence[TakesTiles], block_rows: int | None) -> bool:
    several = len(_strip_slices(comparison, block_rows)) > 1
    possible = comparison.symmetric and not comparison.free_of_rounding
    return several and possible and bool(readers) and all(collector.accepts_strips() for collector in readers)


def _strips(comparison: Comparison, block_rows: int | None, progress: bool) -> Iterator[Strip]:
    strips = _strip_slices(comparison, block_rows)
    queries = len(comparison.queries)
    buffer = comparison.queries.vectors.new_empty(
        max((rows.stop - rows.start) * (queries - rows.start) for rows in strips)
    )
    for rows in _shown(strips, progress):
        yield Strip(comparison, rows, comparison.half_similarity(rows, buffer))


def _tiles(comparison: Comparison, coarse: bool, block_rows: int | None, progress: bool) -> Iterator[Tile]:
    step = min(block_rows or default_block_rows(comparison), len(comparison.order))
    compare = comparison.coarse_similarity if coarse else comparison.similarity
    dtype = torch.bfloat16 if coarse else comparison.gallery.vectors.dtype
    # One buffer for all tiles: fresh memory would cost as much as a fifth of the product that fills it.
    buffer = torch.empty(step, len(comparison.gallery), dtype=dtype, device=comparison.device)
    for block in _shown(slices(len(comparison.order), step), progress):
        rows = comparison.order[block]
        yield Tile(comparison, rows, compare(rows, buffer), coarse)


def _is_coarse(comparison: Comparison, readers: Sequence[TakesTiles], prefilter: Prefilter) -> bool:
    if prefilter not in ("auto", "bfloat16", "none"):
        raise unknown_name("prefilter", prefilter, ["auto", "bfloat16", "none"])
    possible = not comparison.free_of_rounding and all(collector.accepts_coarse for collector in readers)
    if prefilter == "bfloat16" and not possible:
        raise EquimetricError(
            "prefilter='bfloat16' finds nearest neighbours only, and not by Hamming distance; leave it at 'auto', "
            "or ask for metrics that read no more than these"
        )
    # The measurement takes as long as a few thousand queries do.
    if prefilter != "auto" or not possible or len(comparison.order) < LEAST_MEASURED_ROWS:
        return prefilter == "bfloat16"
    dtype, dimension = comparison.gallery.vectors.dtype, comparison.gallery.vectors.shape[1]
    return _bfloat16_speedup(comparison.device, dtype, dimension) >= WORTHWHILE_SPEEDUP


@cache
def _bfloat16_speedup(device: torch.device, dtype: torch.dtype, dimension: int) -> float:
    """How many times faster a product of bfloat16 vectors is on this machine; measured once per process."""

    def seconds(vectors: Tensor) -> float:
        start = time.perf_counter()
        torch.mm(vectors[:256], vectors.T)[:1, :1].cpu()
        return time.perf_counter() - start

    exact = torch.ones(2048, dimension, dtype=dtype, device=device)
    rounded = exact.bfloat16()
    seconds(exact), seconds(rounded)  # the first call loads the kernels
    rounds = [seconds(exact) / seconds(rounded) for _ in range(3)]
    return statistics.median(rounds)


def _shown(blocks: list[slice], progress: bool) -> Iterable[slice]:
    if not progress:
        return blocks
    from equimetric.data.progress import track

    return track(blocks, "comparing", len(blocks))


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Keep the caller's autocast and reduced-precision (TF32, bfloat16) products out of the measurement."""
    cuda = torch.backends.cuda.matmul
    precision, reduced = torch.get_float32_matmul_precision(), cuda.allow_bf16_reduced_precision_reduction
    torch.set_float32_matmul_precision("highest")
    cuda.allow_bf16_reduced_precision_reduction = False
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        cuda.allow_bf16_reduced_precision_reduction = reduced
