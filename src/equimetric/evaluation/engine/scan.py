"""The scan: every query against the whole gallery, one tile at a time, fed to collectors.

Memory is bounded by the tile, never by the square of the data. All collectors share one scan.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.custom_geometry import CustomGeometryMatrix
from equimetric.evaluation.engine.plan import ScanPlan, plan_bands
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.ops.blocks import disable_reduced_precision
from equimetric.progress import show_progress

__all__ = ["Prefilter", "Runner", "ScanTask", "run_in_process", "scan"]

Prefilter = Literal["auto", "bfloat16", "none"]
Advance = Callable[[int], None]

MIN_MEASURED_ROWS = 10_000
WORTHWHILE_SPEEDUP = 3.0
"""Required speed of bfloat16 products: candidates are computed again, and full precision may need half the pairs."""


@dataclass
class ScanTask:
    """All that is needed to read bands of a scan, in this process or in another.

    completed_bands  the bands read so far
    """

    matrix: SimilarityMatrix
    collectors: Sequence[Collector]
    plan: ScanPlan
    completed_bands: list[int] = field(default_factory=list)

    def read(self, bands: range, advance: Advance) -> None:
        """Feed the tiles of some bands to the collectors; `advance` is called with the number of tiles read since."""
        buffer = self.plan.buffer(self.matrix.dtype, self.matrix.device)
        for band in bands:
            for index, columns in enumerate(self.plan.blocks(band)):
                self._collect(band, columns, (band, index), buffer)
                advance(1)
        self.completed_bands += bands

    def run_in_worker(self, bands: range, advance: Advance) -> None:
        """As `read`, in a worker process."""
        with torch.no_grad(), disable_reduced_precision(self.matrix.device):
            self.read(bands, advance)

    def _collect(self, band: int, columns: slice, tile_number: tuple[int, int], buffer: Tensor) -> None:
        matrix, rows = self.matrix, self.plan.bands[band]
        if self.plan.symmetric:
            strip = Strip(matrix, rows, columns, matrix.half_similarity(rows, columns, buffer), tile_number)
            for collector in self.collectors:
                collector.collect_strip(strip)
            return
        compare = matrix.coarse_similarity if self.plan.coarse else matrix.similarity
        queries = matrix.order[rows]
        tile = Tile(matrix, queries, compare(queries, buffer, columns), self.plan.coarse, columns, tile_number)
        for collector in self.collectors:
            collector.collect(tile)

    def partials(self) -> list[Any]:
        """The partial results of the collectors."""
        bands = [self.matrix.order[self.plan.bands[band]] for band in self.completed_bands]
        rows = torch.cat(bands) if bands else self.matrix.order[:0]
        return [collector.partial(rows) for collector in self.collectors]

    def merge(self, partials: Sequence[Any]) -> None:
        """Merge the partial results of a copy of this task."""
        for collector, partial in zip(self.collectors, partials, strict=True):
            collector.merge(partial)


Runner = Callable[[ScanTask, Advance], None]
"""Reads all bands of a task, in one process or several, and merges the results into its collectors."""


def run_in_process(task: ScanTask, advance: Advance) -> None:
    """Read all bands, one after another, in this process."""
    task.read(range(len(task.plan.bands)), advance)


def scan(
    matrix: SimilarityMatrix,
    collectors: Iterable[Collector],
    *,
    block_rows: int | None = None,
    prefilter: Prefilter = "none",
    progress: bool = False,
    run: Runner = run_in_process,
) -> str:
    """Feed every tile of the matrix to every collector that reads tiles; returns how it was computed, in words.

    block_rows  queries in a tile; default: as many as make fast products within 64 MB
    prefilter   'bfloat16' computes coarse tiles, 'auto' does where that is faster and all collectors accept them
    run         reads the tiles in one process or several; the result is the same, bit for bit
    """
    collectors = tuple(collectors)
    readers = [collector for collector in collectors if collector.reads_tiles]
    with torch.no_grad(), disable_reduced_precision(matrix.device):
        for collector in collectors:
            collector.prepare(matrix)
        coarse = _use_coarse(matrix, readers, prefilter)
        plan = plan_bands(matrix, readers, block_rows, coarse=coarse)
        if readers:
            tiles = plan.count_tiles(range(len(plan.bands)))
            with show_progress("comparing", tiles, quiet=not progress) as advance:
                run(ScanTask(matrix, readers, plan), advance)
        for collector in collectors:
            collector.finish()
    exact = str(matrix.dtype).removeprefix("torch.")
    if isinstance(matrix, CustomGeometryMatrix):
        return f"{exact} similarities on {matrix.device.type}"
    products = f"bfloat16 products, candidates taken again in {exact}" if coarse else f"{exact} products"
    return f"{products}{', each pair once,' if plan.symmetric else ''} on {matrix.device.type}"


def _use_coarse(matrix: SimilarityMatrix, readers: Sequence[Collector], prefilter: Prefilter) -> bool:
    if prefilter not in ("auto", "bfloat16", "none"):
        raise unknown_name("prefilter", prefilter, ["auto", "bfloat16", "none"])
    possible = matrix.supports_bfloat16 and not matrix.ranks_as_computed
    possible = possible and all(collector.accepts_coarse for collector in readers)
    if prefilter == "bfloat16" and not possible:
        raise EquimetricError(
            "prefilter='bfloat16' finds nearest neighbours only, of vectors in memory, and not by Hamming distance; "
            "leave it at 'auto', or ask for metrics that read no more than these"
        )
    # The measurement takes as long as a few thousand queries do.
    if prefilter != "auto" or not possible or len(matrix.order) < MIN_MEASURED_ROWS:
        return prefilter == "bfloat16"
    dimension = matrix.gallery.vectors.shape[1]
    return _bfloat16_speedup(matrix.device, matrix.dtype, dimension) >= WORTHWHILE_SPEEDUP


@cache
def _bfloat16_speedup(device: torch.device, dtype: torch.dtype, dimension: int) -> float:
    """Speed-up of a product of bfloat16 vectors on this machine; measured once per process."""

    def seconds(vectors: Tensor) -> float:
        start = time.perf_counter()
        torch.mm(vectors[:256], vectors.T)[:1, :1].cpu()
        return time.perf_counter() - start

    exact = torch.ones(2048, dimension, dtype=dtype, device=device)
    rounded = exact.bfloat16()
    seconds(exact), seconds(rounded)  # the first call loads the kernels
    rounds = [seconds(exact) / seconds(rounded) for _ in range(3)]
    return statistics.median(rounds)
