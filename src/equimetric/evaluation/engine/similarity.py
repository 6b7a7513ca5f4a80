"""The similarity matrix of queries and gallery: inner products in every geometry, computed by rows."""

import math
from dataclasses import replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from equimetric.evaluation.engine.exact import FixedPoint, exact_products, exact_rows, float64_products, row_norms
from equimetric.evaluation.engine.mapped_vectors import MappedVectors, Vectors
from equimetric.evaluation.engine.products import multiply
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.ops.blocks import slices

__all__ = ["ALL", "SimilarityMatrix"]

ALL = slice(None)


class SimilarityMatrix:
    """Similarities of all queries and gallery items, as inner products in every geometry; computed on demand.

    cosine     unit vectors
    dot        the vectors themselves
    hamming    vectors of ±1: Σ uv = D − 2·Hamming distance, without rounding
    euclidean  (q, 1, 1) and (g, −‖g‖²/2 in two parts): ⟨q, g⟩ − ‖g‖²/2 = (‖q‖² − d²) / 2 ranks as −d does

    Without a gallery the queries are their own, each excluded from its own ranking by index; `items` are their vectors
    as gallery items where these differ, with ⟨q_i, g_j⟩ = ⟨q_j, g_i⟩. `excluded` (P, 2) lists further pairs (query,
    gallery item) to exclude; so are all pairs of different `parents` (N,), (G,). Excluded pairs have similarity −∞. A
    scan visits the queries in `order` (N,).
    """

    def __init__(
        self,
        queries: Vectors,
        gallery: Vectors | None = None,
        *,
        items: Vectors | None = None,
        geometry: str = "cosine",
        excluded: Tensor | None = None,
        order: Tensor | None = None,
        parents: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.geometry, self.dimension, self.device = geometry, queries.shape[1], queries.device
        self.order = torch.arange(len(queries), device=self.device) if order is None else order
        self._excluded_from, self._excluded_columns = _index_excluded(
            len(queries), gallery is None, excluded, self.device
        )
        self._parents = parents
        # Euclidean distances rank by products that are not the same from both ends.
        self._symmetric = gallery is None and geometry != "euclidean"
        if geometry == "euclidean":
            queries, gallery, self._scale, self._squared_norms = _as_inner_products(queries, gallery)
        self.queries = FixedPoint(queries)
        gallery = items if gallery is None else gallery
        self.gallery = self.queries if gallery is None else FixedPoint(gallery)
        self._max_norm = self.gallery.norms.max()
        self._coarse: tuple[Tensor, Tensor, Tensor] | None = None

    @classmethod
    def from_sets(cls, sets: LabelledSets) -> Self:
        """The matrix of checked sets, visited class by class."""
        return cls(
            sets.queries,
            sets.gallery,
            items=sets.items,
            geometry=sets.geometry,
            excluded=sets.excluded,
            order=sets.order_by_class,
            parents=sets.parents,
        )

    @property
    def item_count(self) -> int:
        """Number of gallery items G, the columns of the matrix."""
        return len(self.gallery)

    @property
    def symmetric(self) -> bool:
        """Whether s_ij = s_ji: one set compared with itself."""
        return self._symmetric

    @property
    def has_exact_products(self) -> bool:
        """Whether tiles have exact similarities: sums of ±1 are exact."""
        return self.geometry == "hamming"

    @property
    def ranks_as_computed(self) -> bool:
        """Whether the similarities of a tile rank as they are, and never need to be computed again."""
        return self.has_exact_products

    @property
    def dtype(self) -> torch.dtype:
        """The embeddings' own precision."""
        return self.gallery.vectors.dtype

    def similarity(self, rows: Tensor, out: Tensor | None = None, columns: slice = ALL) -> Tensor:
        """Inner products of some queries with the gallery, (rows, G), or with a range of it.

        They have the embeddings' own precision, and overwrite the memory of `out` where it is given.
        """
        similarity = self._output_buffer(out, len(rows), columns, self.dtype)
        multiply(self.queries.vectors[rows], self.gallery.vectors, similarity, columns)
        return self.mask_excluded(similarity, rows, columns)

    def half_similarity(self, rows: slice, columns: slice, out: Tensor) -> Tensor:
        """Inner products of queries in a range of `order` with those in another."""
        queries = self.order[rows]
        similarity = self._output_buffer(out, len(queries), columns, self.dtype)
        multiply(self.queries.vectors[queries], self.gallery.vectors, similarity, self.order[columns])
        return self.mask_excluded(similarity, queries, columns, in_order=True)

    def _output_buffer(self, out: Tensor | None, rows: int, columns: slice, dtype: torch.dtype) -> Tensor:
        """Memory for rows of some columns: the beginning of `out`, or new."""
        width = len(range(*columns.indices(len(self.gallery))))
        if out is None:
            return torch.empty(rows, width, dtype=dtype, device=self.device)
        return out.view(-1)[: rows * width].view(rows, width)

    @cached_property
    def inverse_order(self) -> Tensor:
        """(N,) position of each query in `order`."""
        return torch.empty_like(self.order).index_copy_(
            0, self.order, torch.arange(len(self.order), device=self.device)
        )

    @property
    def supports_bfloat16(self) -> bool:
        """Whether there may be copies in bfloat16: of vectors in memory."""
        return not isinstance(self.queries.vectors, MappedVectors) and not isinstance(
            self.gallery.vectors, MappedVectors
        )

    @property
    def converts_on_read(self) -> bool:
        """Whether gallery vectors are on disk, and converted whenever they are read."""
        return isinstance(self.gallery.vectors, MappedVectors) and self.gallery.vectors.converts_on_read

    def coarse_similarity(self, rows: Tensor, out: Tensor | None = None, columns: slice = ALL) -> Tensor:
        """As `similarity`, from vectors rounded to bfloat16."""
        queries, gallery, _ = self.bfloat16_copies()
        similarity = self._output_buffer(out, len(rows), columns, queries.dtype)
        multiply(queries[rows], gallery, similarity, columns)
        return self.mask_excluded(similarity, rows, columns)

    def coarse_tolerance(self, rows: Tensor) -> Tensor:
        """Smallest difference of two coarse similarities that makes their order certain, (rows, 1) float64.

        |⟨q, g⟩ − ⟨q̃, g̃⟩| ≤ ‖q − q̃‖·‖g‖ + ‖q̃‖·‖g − g̃‖ by Cauchy–Schwarz, plus the errors of summing in float32 and
        of rounding the sum to bfloat16.
        """
        _, _, residual = self.bfloat16_copies()
        gallery_residual = residual if self.gallery is self.queries else self._gallery_residual
        norms, max_norm = self.queries.norms[rows], self._max_norm
        vector_error = residual[rows] * max_norm + (norms + residual[rows]) * gallery_residual.max()
        largest = (norms + residual[rows]) * (max_norm + gallery_residual.max())
        rounding = (self._steps * torch.finfo(torch.float32).eps + torch.finfo(torch.bfloat16).eps / 2) * largest
        return 2 * (vector_error + rounding)[:, None]

    def float64_rows(self, rows: Tensor) -> Tensor:
        """As `similarity`, in float64."""
        queries = self.queries.vectors[rows].double()
        similarity = queries.new_empty(len(rows), len(self.gallery))
        for columns in slices(len(self.gallery), self.gallery.piece_rows()):
            torch.mm(queries, self.gallery.vectors[columns].double().T, out=similarity[:, columns])
        return self.mask_excluded(similarity, rows)

    def exact_rows(self, rows: Tensor, columns: slice = ALL) -> Tensor:
        """As `similarity`, without rounding: float64."""
        return self.mask_excluded(exact_rows(self.queries, self.gallery, rows, columns), rows, columns)

    def float64_products(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The similarity of P pairs (query, gallery item): (P,) float64."""
        return float64_products(self.queries, self.gallery, rows, columns)

    def exact_products(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The similarity, without rounding, of P pairs (query, gallery item): (P,) float64."""
        return exact_products(self.queries, self.gallery, rows, columns)

    def tolerance(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Smallest difference of two similarities in `dtype` that makes their order certain, (rows, 1).

        A sum of D products is rounded D times, each time by at most half an epsilon of ‖q‖·‖g‖. Long sums are added in
        parts and most errors cancel: the total stays below 16√D of these steps, twice the worst measured case. Exact
        products read both vectors in fixed point, which changes them a little.
        """
        error = self._steps * torch.finfo(dtype).eps / 2 + 2 * self.queries.rounding
        return 2 * error * self._max_norm * self.queries.norms[rows, None]

    def distance(self, similarity: Tensor, rows: Tensor) -> Tensor:
        """Distances (rows, G) from similarities: Euclidean, also between unit vectors; Hamming; −s of dot products."""
        if self.geometry == "cosine":
            return (2 - 2 * similarity).clamp_(min=0).sqrt_()
        if self.geometry == "hamming":
            return (self.dimension - similarity) / 2
        if self.geometry == "dot":
            return -similarity
        squared = self._squared_norms[rows, None].to(similarity.dtype) - 2 * similarity
        return squared.clamp_(min=0).sqrt_().mul_(self._scale)

    def mask_excluded(
        self, similarity: Tensor, rows: Tensor, columns: slice = ALL, *, in_order: bool = False
    ) -> Tensor:
        """Set the similarities of excluded pairs to −∞, in place.

        Columns are a range of the gallery, or with `in_order` of one set in `order`.
        """
        if self._parents is not None:
            query_parents, item_parents = self._parents
            item_parents = item_parents[self.order[columns] if in_order else columns]
            similarity.masked_fill_(query_parents[rows, None] != item_parents, -torch.inf)
        start, counts = self._excluded_from[rows], self._excluded_from[rows + 1] - self._excluded_from[rows]
        indices = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
        within = torch.arange(len(indices), device=rows.device) - (counts.cumsum(0) - counts)[indices]
        items = self._excluded_columns[start[indices] + within]
        first, stop, step = columns.indices(len(self.gallery))
        if in_order or similarity.shape[1] < len(self.gallery):
            column = (self.inverse_order[items] if in_order else items) - first
            exists = (column >= 0) & (column < stop - first) & (column % step == 0)
            indices, items = indices[exists], column[exists] // step
        similarity[indices, items] = -torch.inf
        return similarity

    @property
    def _steps(self) -> float:
        dimension = self.queries.vectors.shape[1]
        return min(dimension, 16 * math.sqrt(dimension))

    def bfloat16_copies(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and gallery in bfloat16, and the change of each query, ‖q − q̃‖ (N,) float64."""
        if self._coarse is None:
            queries, residual = _round_to_bfloat16(self.queries)
            gallery = queries
            if self.gallery is not self.queries:
                gallery, self._gallery_residual = _round_to_bfloat16(self.gallery)
            self._coarse = queries, gallery, residual
        return self._coarse


def _index_excluded(
    queries: int, one_set: bool, excluded: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Offsets and gallery items of the excluded pairs: those of query i span offsets[i] … offsets[i + 1]."""
    pairs = torch.empty(0, 2, dtype=torch.int64) if excluded is None else excluded.cpu()
    if one_set:
        pairs = torch.cat([torch.arange(queries)[:, None].expand(-1, 2), pairs])
    by_query = pairs[pairs[:, 0].argsort(stable=True)]
    offsets = torch.zeros(queries + 1, dtype=torch.int64)
    offsets[1:] = torch.bincount(by_query[:, 0], minlength=queries).cumsum(0)
    return offsets.to(device), by_query[:, 1].contiguous().to(device)


def _as_inner_products(queries: Vectors, gallery: Vectors | None) -> tuple[Vectors, Vectors, float, Tensor]:
    """Vectors whose inner products rank as Euclidean distances do: see `SimilarityMatrix`.

    Returns them with the power of two that scales the longest vector to about 1, and ‖q‖² after scaling.
    """
    gallery = queries if gallery is None else gallery
    norms = [row_norms(vectors) for vectors in (queries, gallery)]
    max_norm = max(float(row_norm.max()) for row_norm in norms)
    scale = 2.0 ** math.frexp(max_norm)[1] if max_norm > 0 else 1.0
    half = ((norms[1] / scale) ** 2 / 2)[:, None]
    rounded = half.to(gallery.dtype)
    rest = (half - rounded.double()).to(gallery.dtype)
    ones = torch.ones(len(queries), 2, dtype=queries.dtype, device=queries.device)
    extended = _extend(queries, scale, ones), _extend(gallery, scale, torch.cat([-rounded, -rest], dim=1))
    return *extended, scale, (norms[0] / scale) ** 2


def _extend(vectors: Vectors, scale: float, extra: Tensor) -> Vectors:
    """(N, D + E) the vectors divided by `scale`, then further columns (N, E)."""
    if isinstance(vectors, MappedVectors):
        return replace(vectors, scale=scale, extra=extra)
    return torch.cat([vectors / scale, extra], dim=1)


def _round_to_bfloat16(vectors: FixedPoint) -> tuple[Tensor, Tensor]:
    assert isinstance(vectors.vectors, Tensor)
    rounded, changed = vectors.vectors.bfloat16(), torch.empty_like(vectors.norms)
    for rows in slices(len(vectors), vectors.piece_rows()):
        difference = vectors.vectors[rows].double() - rounded[rows].double()
        changed[rows] = torch.linalg.vector_norm(difference, dim=1)
    return rounded, changed
