"""The scan: every query against the whole gallery, one tile of rows at a time, fed to collectors.

Memory is bounded by the tile (block × gallery), never by the square of the data. A collector takes from a tile what
its metrics need; several collectors share one scan.
"""

import math
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
from equimetric.evaluation.exact import FixedPoint, exact_products, exact_rows, float64_products, slices
from equimetric.evaluation.inputs import Geometry, LabelledSets

__all__ = [
    "TILE_BYTES",
    "Comparison",
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
LEAST_BLOCK_ROWS = 64
"""Below this many rows a matrix product waits for memory, however large the gallery."""
PRODUCT_BYTES = 2**21
"""Gallery vectors multiplied at a time: they stay in the cache while all rows of the tile meet them."""
FEWEST_STRIPS = 16
"""With few strips, much is computed on both sides of the diagonal."""
LEAST_MEASURED_ROWS = 10_000
WORTHWHILE_SPEEDUP = 3.0
"""How much faster bfloat16 products must be: candidates are taken again, and exact products may need half the pairs."""


class Comparison:
    """Queries seen against a gallery, by inner products, whatever the geometry.

    cosine     vectors of unit length
    dot        vectors as they are
    hamming    vectors of ±1: Σ uv = D − 2·Hamming distance, free of rounding
    euclidean  (q, 1, 1) against (g, −‖g‖²/2 in two parts): ⟨q, g⟩ − ‖g‖²/2 = (‖q‖² − d²) / 2 ranks as −d does

    Without a gallery it is the query set itself, each query left out of its own ranking by index. `absent`, pairs
    (query, gallery item) of shape (P, 2), names pairs left out besides. Pairs that are left out have similarity −∞.
    `order` (N,) is the order in which a scan visits the queries. With `in_place`, rounding to fixed point (some 1e-14)
    changes the vectors given, to save a copy.
    """

    def __init__(
        self,
        queries: Tensor,
        gallery: Tensor | None = None,
        *,
        geometry: Geometry = "cosine",
        absent: Tensor | None = None,
        order: Tensor | None = None,
        in_place: bool = False,
    ) -> None:
        self.geometry, self.dimension, self.device = geometry, queries.shape[1], queries.device
        self.order = torch.arange(len(queries), device=self.device) if order is None else order
        self._absent_from, self._absent_columns = _absent_pairs(queries, gallery, absent)
        if geometry == "euclidean":
            queries, gallery, self._scale, self._squared_length = _as_inner_products(queries, gallery)
            in_place = True
        self.queries = FixedPoint(queries, in_place=in_place)
        self.gallery = self.queries if gallery is None else FixedPoint(gallery, in_place=in_place)
        self._longest = self.gallery.length.max()
        self._coarse: tuple[Tensor, Tensor, Tensor] | None = None

    @classmethod
    def of(cls, sets: LabelledSets) -> "Comparison":
        """The comparison of checked sets, class by class."""
        # Unit vectors and bits are copies of what was given already.
        in_place = sets.geometry in ("cosine", "hamming")
        return cls(
            sets.queries,
            sets.gallery,
            geometry=sets.geometry,
            absent=sets.absent,
            order=sets.order_by_class,
            in_place=in_place,
        )

    @property
    def symmetric(self) -> bool:
        """Whether s_ij = s_ji: one set, compared by inner products of the same vectors."""
        return self.gallery is self.queries

    @property
    def free_of_rounding(self) -> bool:
        """Whether the similarities of a tile are exact: sums of ±1 are."""
        return self.geometry == "hamming"

    def similarity(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Inner products of some queries with the gallery, (rows, G), in the embeddings' own precision."""
        similarity = self.queries.vectors.new_empty(len(rows), len(self.gallery)) if out is None else out[: len(rows)]
        _multiply(self.queries.vectors[rows], self.gallery.vectors, similarity)
        return self.leave_out(similarity, rows)

    def half_similarity(self, rows: slice, out: Tensor) -> Tensor:
        """Inner products of consecutive queries of one set with themselves and all after them, (rows, N − start)."""
        similarity = out[: (rows.stop - rows.start) * (len(self.queries) - rows.start)].view(rows.stop - rows.start, -1)
        _multiply(self.queries.vectors[rows], self.queries.vectors[rows.start :], similarity)
        return self.leave_out(similarity, torch.arange(rows.start, rows.stop, device=self.device), rows.start)

    def coarse_similarity(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """As `similarity`, from vectors rounded to bfloat16."""
        queries, gallery, _ = self._rounded()
        similarity = queries.new_empty(len(rows), len(gallery)) if out is None else out[: len(rows)]
        _multiply(queries[rows], gallery, similarity)
        return self.leave_out(similarity, rows)

    def coarse_tolerance(self, rows: Tensor) -> Tensor:
        """How far apart two coarse similarities must be for their order to be certain, (rows, 1) float64.

        |⟨q, g⟩ − ⟨q̃, g̃⟩| ≤ ‖q − q̃‖·‖g‖ + ‖q̃‖·‖g − g̃‖ by Cauchy–Schwarz, with the lengths as they are; summing in
        float32 and rounding the sum to bfloat16 add their own.
        """
        _, _, residual = self._rounded()
        gallery_residual = residual if self.gallery is self.queries else self._gallery_residual
        length, longest = self.queries.length[rows], self._longest
        vectors = residual[rows] * longest + (length + residual[rows]) * gallery_residual.max()
        largest = (length + residual[rows]) * (longest + gallery_residual.max())
        rounding = (self._steps * torch.finfo(torch.float32).eps + torch.finfo(torch.bfloat16).eps / 2) * largest
        return 2 * (vectors + rounding)[:, None]

    def float64_rows(self, rows: Tensor) -> Tensor:
        """As `similarity`, in float64."""
        queries = self.queries.vectors[rows].double()
        similarity = queries.new_empty(len(rows), len(self.gallery))
        for columns in slices(len(self.gallery), self.gallery.piece_rows()):
            torch.mm(queries, self.gallery.vectors[columns].double().T, out=similarity[:, columns])
        return self.leave_out(similarity, rows)

    def exact_rows(self, rows: Tensor) -> Tensor:
        """As `similarity`, without rounding: (len(rows), G) float64."""
        return self.leave_out(exact_rows(self.queries, self.gallery, rows), rows)

    def float64_products(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The similarity of P pairs (query, gallery item): (P,) float64."""
        return float64_products(self.queries, self.gallery, rows, columns)

    def exact_products(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The similarity, without rounding, of P pairs (query, gallery item): (P,) float64."""
        return exact_products(self.queries, self.gallery, rows, columns)

    def tolerance(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """How far apart two similarities computed in `dtype` must be for their order to be certain, (rows, 1).

        A sum of D products is rounded D times, each time by at most half an epsilon of ‖q‖·‖g‖. Long sums are added in
        parts and their errors mostly cancel: they stay below 16√D of these steps, twice the worst that was found.
        """
        error = self._steps * torch.finfo(dtype).eps / 2 * self._longest * self.queries.length[rows]
        return 2 * error[:, None]

    def distance(self, similarity: Tensor, rows: Tensor) -> Tensor:
        """Distances (rows, G) of the geometry from similarities: Euclidean, for unit vectors too; −s of products."""
        if self.geometry == "cosine":
            return (2 - 2 * similarity).clamp_(min=0).sqrt_()
        if self.geometry == "hamming":
            return (self.dimension - similarity) / 2
        if self.geometry == "dot":
            return -similarity
        squared = self._squared_length[rows, None].to(similarity.dtype) - 2 * similarity
        return squared.clamp_(min=0).sqrt_().mul_(self._scale)

    def leave_out(self, similarity: Tensor, rows: Tensor, first: int = 0) -> Tensor:
        """Similarities (rows, G − first) with −∞, in place, for the pairs that are left out."""
        start, counts = self._absent_from[rows], self._absent_from[rows + 1] - self._absent_from[rows]
        places = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
        within = torch.arange(len(places), device=rows.device) - (counts.cumsum(0) - counts)[places]
        columns = self._absent_columns[start[places] + within] - first
        similarity[places[columns >= 0], columns[columns >= 0]] = -torch.inf
        return similarity

    @property
    def _steps(self) -> float:
        dimension = self.queries.vectors.shape[1]
        return min(dimension, 16 * math.sqrt(dimension))

    def _rounded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and gallery in bfloat16, and by how much each query was changed, ‖q − q̃‖ (N,) float64."""
        if self._coarse is None:
            queries, residual = _rounded_to_bfloat16(self.queries)
            gallery = queries
            if self.gallery is not self.queries:
                gallery, self._gallery_residual = _rounded_to_bfloat16(self.gallery)
            self._coarse = queries, gallery, residual
        return self._coarse


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
    """Some consecutive queries of one set against themselves and all that come after them: (rows, N − start)."""

    comparison: Comparison
    rows: slice
    similarity: Tensor


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


def _strip_rows(comparison: Comparison, block_rows: int | None) -> int:
    queries = len(comparison.queries)
    wanted = min(default_block_rows(comparison), max(QUICK_BLOCK_ROWS, queries // FEWEST_STRIPS))
    return min(block_rows or wanted // LEAST_BLOCK_ROWS * LEAST_BLOCK_ROWS, queries)


def _can_be_halved(comparison: Comparison, readers: Sequence[TakesTiles], block_rows: int | None) -> bool:
    several = _strip_rows(comparison, block_rows) < len(comparison.queries)
    possible = comparison.symmetric and not comparison.free_of_rounding
    return several and possible and bool(readers) and all(collector.accepts_strips() for collector in readers)


def _strips(comparison: Comparison, block_rows: int | None, progress: bool) -> Iterator[Strip]:
    step = _strip_rows(comparison, block_rows)
    buffer = comparison.queries.vectors.new_empty(step * len(comparison.queries))
    for rows in _blocks(len(comparison.queries), step, progress):
        yield Strip(comparison, rows, comparison.half_similarity(rows, buffer))


def _tiles(comparison: Comparison, coarse: bool, block_rows: int | None, progress: bool) -> Iterator[Tile]:
    step = min(block_rows or default_block_rows(comparison), len(comparison.order))
    compare = comparison.coarse_similarity if coarse else comparison.similarity
    dtype = torch.bfloat16 if coarse else comparison.gallery.vectors.dtype
    # One buffer for all tiles: fresh memory would cost as much as a fifth of the product that fills it.
    buffer = torch.empty(step, len(comparison.gallery), dtype=dtype, device=comparison.device)
    for block in _blocks(len(comparison.order), step, progress):
        rows = comparison.order[block]
        yield Tile(comparison, rows, compare(rows, buffer), coarse)


def _multiply(queries: Tensor, gallery: Tensor, out: Tensor) -> None:
    """All inner products into `out` (Q, G), a few gallery vectors at a time."""
    if out.is_cuda:
        torch.mm(queries, gallery.T, out=out)
        return
    step = max(LEAST_BLOCK_ROWS, PRODUCT_BYTES // (gallery.shape[1] * gallery.element_size()))
    for columns in slices(len(gallery), step):
        torch.mm(queries, gallery[columns].T, out=out[:, columns])


def _absent_pairs(queries: Tensor, gallery: Tensor | None, absent: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gallery items left out of each query's ranking: those of query i stand at offsets[i] … offsets[i + 1]."""
    pairs = torch.empty(0, 2, dtype=torch.int64) if absent is None else absent.cpu()
    if gallery is None:
        pairs = torch.cat([torch.arange(len(queries))[:, None].expand(-1, 2), pairs])
    by_query = pairs[pairs[:, 0].argsort(stable=True)]
    offsets = torch.zeros(len(queries) + 1, dtype=torch.int64)
    offsets[1:] = torch.bincount(by_query[:, 0], minlength=len(queries)).cumsum(0)
    return offsets.to(queries.device), by_query[:, 1].contiguous().to(queries.device)


def _as_inner_products(queries: Tensor, gallery: Tensor | None) -> tuple[Tensor, Tensor, float, Tensor]:
    """Vectors whose inner products rank as Euclidean distances do: see `Comparison`.

    Also the power of two by which lengths were divided, so that the longest is near 1, and ‖q‖² after that.
    """
    gallery = queries if gallery is None else gallery
    lengths = [torch.linalg.vector_norm(vectors.double(), dim=1) for vectors in (queries, gallery)]
    longest = max(float(length.max()) for length in lengths)
    scale = 2.0 ** math.frexp(longest)[1] if longest > 0 else 1.0
    half = ((lengths[1] / scale) ** 2 / 2)[:, None]
    leading = half.to(gallery.dtype)
    rest = (half - leading.double()).to(gallery.dtype)
    one = queries.new_ones(len(queries), 2)
    extended = torch.cat([queries / scale, one], dim=1)
    return extended, torch.cat([gallery / scale, -leading, -rest], dim=1), scale, (lengths[0] / scale) ** 2


def _rounded_to_bfloat16(vectors: FixedPoint) -> tuple[Tensor, Tensor]:
    rounded = vectors.vectors.bfloat16()
    changed = [
        torch.linalg.vector_norm(vectors.vectors[rows].double() - rounded[rows].double(), dim=1)
        for rows in slices(len(vectors), vectors.piece_rows())
    ]
    return rounded, torch.cat(changed)


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


def _blocks(total: int, step: int, progress: bool) -> Iterable[slice]:
    blocks = slices(total, step)
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
