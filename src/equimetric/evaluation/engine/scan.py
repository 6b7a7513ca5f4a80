"""The scan: every query against the whole gallery, one tile at a time, fed to collectors.

Memory is bounded by the tile (block × gallery), never by the square of the data. All collectors share one scan.
"""

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.measured import MeasuredMatrix
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Strip, Tile, default_block_rows, strip_slices
from equimetric.ops.blocks import disable_reduced_precision, slices

__all__ = ["Prefilter", "scan"]

Prefilter = Literal["auto", "bfloat16", "none"]

LEAST_HALVED_ROWS = 2500
"""Of fewer queries, half of the products take less time than merging what strips find."""
LEAST_MEASURED_ROWS = 10_000
WORTHWHILE_SPEEDUP = 3.0
"""Required speed of bfloat16 products: candidates are computed again, and full precision may need half the pairs."""


def scan(
    matrix: SimilarityMatrix,
    collectors: Iterable[Collector],
    *,
    block_rows: int | None = None,
    prefilter: Prefilter = "none",
    progress: bool = False,
) -> str:
    """Feed every tile of the matrix to every collector that reads tiles; returns how it was computed, in words.

    block_rows  queries in a tile; default: as many as keep it within 64 MB
    prefilter   'bfloat16' computes coarse tiles, 'auto' does where that is faster and all collectors accept them
    """
    collectors = tuple(collectors)
    readers = [collector for collector in collectors if collector.reads_tiles]
    with torch.no_grad(), disable_reduced_precision(matrix.device):
        for collector in collectors:
            collector.prepare(matrix)
        coarse = _use_coarse(matrix, readers, prefilter)
        halves = not coarse and _use_strips(matrix, readers, block_rows)
        if halves:
            for strip in _strips(matrix, block_rows, progress):
                for collector in readers:
                    collector.collect_strip(strip)
        elif readers:
            for tile in _tiles(matrix, coarse, block_rows, progress):
                for collector in readers:
                    collector.collect(tile)
        for collector in collectors:
            collector.finish()
    exact = str(matrix.gallery.vectors.dtype).removeprefix("torch.")
    if isinstance(matrix, MeasuredMatrix):
        return f"{exact} similarities on {matrix.device.type}"
    products = f"bfloat16 products, candidates taken again in {exact}" if coarse else f"{exact} products"
    return f"{products}{', each pair once,' if halves else ''} on {matrix.device.type}"


def _use_strips(matrix: SimilarityMatrix, readers: Sequence[Collector], block_rows: int | None) -> bool:
    if block_rows is None and len(matrix.queries) < LEAST_HALVED_ROWS:
        return False
    several = len(strip_slices(matrix, block_rows)) > 1
    possible = matrix.symmetric and not matrix.free_of_rounding
    return several and possible and bool(readers) and all(collector.accepts_strips() for collector in readers)


def _strips(matrix: SimilarityMatrix, block_rows: int | None, progress: bool) -> Iterator[Strip]:
    strips = strip_slices(matrix, block_rows)
    queries = len(matrix.queries)
    buffer = matrix.queries.vectors.new_empty(max((rows.stop - rows.start) * (queries - rows.start) for rows in strips))
    for rows in _track(strips, progress):
        yield Strip(matrix, rows, matrix.half_similarity(rows, buffer))


def _tiles(matrix: SimilarityMatrix, coarse: bool, block_rows: int | None, progress: bool) -> Iterator[Tile]:
    step = min(block_rows or default_block_rows(matrix), len(matrix.order))
    compare = matrix.coarse_similarity if coarse else matrix.similarity
    dtype = torch.bfloat16 if coarse else matrix.gallery.vectors.dtype
    # One buffer for all tiles: fresh memory would cost as much as a fifth of the product that fills it.
    buffer = torch.empty(step, len(matrix.gallery), dtype=dtype, device=matrix.device)
    for block in _track(slices(len(matrix.order), step), progress):
        rows = matrix.order[block]
        yield Tile(matrix, rows, compare(rows, buffer), coarse)


def _use_coarse(matrix: SimilarityMatrix, readers: Sequence[Collector], prefilter: Prefilter) -> bool:
    if prefilter not in ("auto", "bfloat16", "none"):
        raise unknown_name("prefilter", prefilter, ["auto", "bfloat16", "none"])
    possible = not matrix.ranks_as_computed and all(collector.accepts_coarse for collector in readers)
    if prefilter == "bfloat16" and not possible:
        raise EquimetricError(
            "prefilter='bfloat16' finds nearest neighbours only, and not by Hamming distance; leave it at 'auto', "
            "or ask for metrics that read no more than these"
        )
    # The measurement takes as long as a few thousand queries do.
    if prefilter != "auto" or not possible or len(matrix.order) < LEAST_MEASURED_ROWS:
        return prefilter == "bfloat16"
    dtype, dimension = matrix.gallery.vectors.dtype, matrix.gallery.vectors.shape[1]
    return _bfloat16_speedup(matrix.device, dtype, dimension) >= WORTHWHILE_SPEEDUP


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


def _track(blocks: list[slice], progress: bool) -> Iterable[slice]:
    if not progress:
        return blocks
    from equimetric.progress import track

    return track(blocks, "comparing", len(blocks))
