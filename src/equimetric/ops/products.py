"""Unit vectors, inner products and distances with short backward passes.

Small batches are bound by the number of operations, large ones by the number of passes over memory; both profit from
one node in the graph where plain arithmetic has five. Under `torch.compile` and `torch.func` plain arithmetic is used.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.ops.blocks import slices
from equimetric.ops.masks import flatnonzero

__all__ = [
    "add_sparse_transpose",
    "full_precision",
    "inner_products",
    "is_tracing",
    "map_with_transpose",
    "negative_distance",
    "pairwise",
    "safe_sqrt",
    "sparse_gradient",
    "squared_chord",
    "squared_distance",
    "squared_norms",
    "unit",
    "weighted_differences",
]

COINCIDENT = 1e-7
"""Distances up to this are taken as 0, with gradient 0: the direction between coincident points is rounding noise."""

STRIP_SIZE = 256
"""Rows of a symmetric matrix that are computed together and stay in cache."""

BACKWARD_ROWS = 512
"""Rows of M + Mᵀ that are multiplied together: fresh memory is filled slowly, small products are slow."""

MIN_STRIPS = 4
"""From this many strips on, computing half of a symmetric matrix pays for the copying."""

ALL_ROWS = slice(None)
"""All rows at once, without a view: in a small batch a view costs as much as the computation."""

MAX_SMALL_SIZE = 64
"""Up to this many rows, the transpose is added directly."""

SPARSE_MIN_ENTRIES, SPARSE_RATIO = 2**16, 32
"""From this many entries on, listing those that are not 0 pays where they are a thirty-second or less, divided by the
number of threads, because sparse products use one."""

PAIRWISE_CHUNK_ENTRIES = 2**20
"""Activations that `pairwise` computes together."""

SAMPLE_ROWS = 16
"""Sampled rows, which for most matrices show whether there are more than a few entries."""


def is_tracing() -> bool:
    """Whether torch is compiling or transforming the computation and has to trace each operation."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def full_precision(device: str) -> AbstractContextManager[object]:
    """Switch autocast off, where it is on: similarities in half precision are too coarse."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def safe_norm(vectors: Tensor) -> Tensor:
    """(…, 1) norms of the rows, 1 for a zero row."""
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.threshold(norm, 1e-12, 1.0)


class Normalize(torch.autograd.Function):
    """u = x / ‖x‖, ∂u = (g − u (u·g)) / ‖x‖; a zero row stays zero and passes its gradient on unchanged."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """(…, D) → (…, D) and the (…, 1) norms they were divided by."""
        ctx.set_materialize_grads(False)
        divisor = safe_norm(vectors)
        units = vectors / divisor
        ctx.save_for_backward(units, divisor)
        return units, divisor

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Tensor | None:
        """The tangential part of the gradient over the norm, plus u g for a gradient g of the norm."""
        units, divisor = ctx.saved_tensors
        grad_units, grad_divisor = grad_outputs
        gradient = None
        if grad_units is not None:
            along = (units * grad_units).sum(-1, keepdim=True)
            gradient = torch.addcmul(grad_units, units, along, value=-1) / divisor
        # The norm is saved for backward only: it has a gradient of its own in double backward.
        if grad_divisor is not None:
            gradient = units * grad_divisor if gradient is None else gradient + units * grad_divisor
        return gradient


def take_rows(values: Tensor, rows: slice) -> Tensor:
    """Take some rows, or the values themselves for `ALL_ROWS`."""
    return values if rows is ALL_ROWS else values[rows]


def sparse_gradient(gradient: Tensor, negative: Tensor | None = None) -> Tensor | None:
    """A gradient that is 0 for all but few pairs as a sparse matrix, else None.

    After a selection, or a hinge that is 0 for most pairs, backward then takes a fraction of the time. With
    `negative`, a matrix of negative distances, the entries are divided by the distance. None also in double backward.
    """
    if gradient.numel() < SPARSE_MIN_ENTRIES or not gradient.is_cpu or torch.is_grad_enabled() or is_tracing():
        return None
    # Some rows first: they show most gradients that have more than a few entries.
    for rows in (gradient[:: 1 + len(gradient) // SAMPLE_ROWS], gradient):
        nonzero = rows.bool()
        if SPARSE_RATIO * torch.get_num_threads() * np.count_nonzero(nonzero.numpy()) > rows.numel():
            return None
    indices = flatnonzero(nonzero)
    entries = gradient.reshape(-1)[indices]
    if negative is not None:
        entries = divide_by_distance(entries, negative.reshape(-1)[indices])
    rows = indices // gradient.shape[1]
    indices_2d = torch.stack([rows, indices - rows * gradient.shape[1]])
    return torch.sparse_coo_tensor(indices_2d, entries, gradient.shape, is_coalesced=True, check_invariants=False)


def add_sparse_transpose(indices: Tensor, entries: Tensor, size: int) -> Tensor:
    """Sparse (N, N) M + Mᵀ of few entries at (2, E) indices: rows and columns."""
    both_indices, both_entries = torch.cat([indices, indices.flip(0)], 1), torch.cat([entries, entries])
    return torch.sparse_coo_tensor(both_indices, both_entries, (size, size), check_invariants=False)


def map_with_transpose(
    matrix: Tensor, compute_strip: Callable[[slice, Tensor], Tensor], row_scale: Tensor | None = None
) -> Tensor:
    """`compute_strip(rows, M + Mᵀ of these rows)` for all rows, strip by strip, so that no second matrix is filled.

    With `row_scale` the rows of M are multiplied by it first. Copying the transpose is several times faster than adding
    it column by column.
    """

    def sums(rows: slice) -> Tensor:
        transposed = matrix[:, rows].contiguous().T.clone(memory_format=torch.contiguous_format)
        if row_scale is None:
            return transposed.add_(matrix[rows])
        # Double backward still needs the factor.
        scaled = transposed * row_scale if torch.is_grad_enabled() else transposed.mul_(row_scale)
        return scaled.addcmul_(matrix[rows], row_scale[rows, None])

    size = matrix.shape[0]
    if size <= MAX_SMALL_SIZE and row_scale is None:
        return compute_strip(ALL_ROWS, matrix + matrix.T)
    if size <= BACKWARD_ROWS:
        return compute_strip(ALL_ROWS, sums(ALL_ROWS))
    return torch.cat([compute_strip(rows, sums(rows)) for rows in slices(size, BACKWARD_ROWS)])


def symmetric(vectors: Tensor, compute_strip: Callable[[slice, slice], Tensor]) -> Tensor:
    """(N, N) matrix of `compute_strip(rows, columns)`, a symmetric measure of vectors, each pair computed once.

    Strip by strip the entries right of the diagonal are computed and mirrored.
    """
    size = vectors.shape[0]
    if size < MIN_STRIPS * STRIP_SIZE:
        return compute_strip(ALL_ROWS, ALL_ROWS)
    whole = vectors.new_empty(size, size)
    for rows in slices(size, STRIP_SIZE):
        onwards = slice(rows.start, None)
        whole[rows, onwards] = part = compute_strip(rows, onwards)
        whole[onwards, rows] = part.T.contiguous()
    return whole


class SelfProducts(torch.autograd.Function):
    """S = X Xᵀ. Its gradient (G + Gᵀ) X is one matrix product; differentiating each factor would take two."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        """(N, D) → (N, N)."""
        ctx.save_for_backward(vectors)
        return symmetric(vectors, lambda rows, columns: take_rows(vectors, rows) @ take_rows(vectors, columns).T)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        """(G + Gᵀ) X."""
        vectors: Tensor = ctx.saved_tensors[0]
        with full_precision(vectors.device.type):
            sparse_grad = sparse_gradient(grad_outputs[0])
            if sparse_grad is not None:
                return add_sparse_transpose(sparse_grad.indices(), sparse_grad.values(), len(vectors)) @ vectors
            return map_with_transpose(grad_outputs[0], lambda _, sums: sums @ vectors)


def squared_norms(vectors: Tensor) -> Tensor:
    """(…, D) → (…,) ‖x‖², short by the rounding error of a matrix product of such vectors.

    So ‖q‖² + ‖r‖² − 2 q·r of coincident points is at or below 0, and never a small distance that a mean over distances
    above zero would count.
    """
    steps = 4 + sqrt(vectors.shape[-1]) / 4
    squares: Tensor = torch.linalg.vecdot(vectors, vectors)
    return squares * (1 - steps * torch.finfo(vectors.dtype).eps)


class NegativeDistance(torch.autograd.Function):
    """−d of d² = ‖q‖² + ‖r‖² − 2 q·r, with ∂(−d)/∂q = (r − q)/d = −∂(−d)/∂r, 0 at d = 0."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, references: Tensor) -> Tensor:
        """(Q, D), (R, D) → (Q, R)."""
        query_norms = squared_norms(queries)
        is_self = queries is references
        reference_norms = query_norms if is_self else squared_norms(references)

        def compute_strip(rows: slice, columns: slice) -> Tensor:
            query_rows, reference_rows = take_rows(queries, rows), take_rows(references, columns)
            products = torch.addmm(query_norms[rows, None], query_rows, reference_rows.T, alpha=-2)
            products.add_(take_rows(reference_norms, columns))
            return torch.threshold_(products, COINCIDENT**2, 0).sqrt_().neg_()

        distance = symmetric(queries, compute_strip) if is_self else compute_strip(ALL_ROWS, ALL_ROWS)
        ctx.save_for_backward(queries, references, distance)
        return distance

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """W R − q Σ_r W for the queries and Wᵀ Q − r Σ_q W for the references, W = g/d."""
        queries, references, distance = ctx.saved_tensors

        def pull(rows: slice, gradient: Tensor) -> Tensor:
            scaled = divide_by_distance_chunked(gradient, take_rows(distance, rows))
            return weighted_differences(scaled, take_rows(queries, rows), references)

        sparse_grad = sparse_gradient(grad_outputs[0], negative=distance)
        if queries is references:
            if sparse_grad is None:
                return map_with_transpose(grad_outputs[0], pull), None
            return weighted_differences(
                add_sparse_transpose(sparse_grad.indices(), sparse_grad.values(), len(queries)), queries, queries
            ), None
        gradient = divide_by_distance_chunked(grad_outputs[0].clone(), distance) if sparse_grad is None else sparse_grad
        needs_queries, needs_references = ctx.needs_input_grad
        return (
            weighted_differences(gradient, queries, references) if needs_queries else None,
            weighted_differences(gradient.T, references, queries) if needs_references else None,
        )


def divide_by_distance(gradient: Tensor, negative: Tensor) -> Tensor:
    """Divide a gradient by the distance in place; 0 for coincident points."""
    return gradient.div_(torch.threshold_(negative.neg(), COINCIDENT, torch.inf))


def divide_by_distance_chunked(gradient: Tensor, negative: Tensor) -> Tensor:
    """Divide a (Q, R) gradient by the distance in place, a few rows at a time."""
    if gradient.shape[0] <= STRIP_SIZE:
        return divide_by_distance(gradient, negative)
    for rows in slices(gradient.shape[0], STRIP_SIZE):
        divide_by_distance(gradient[rows], negative[rows])
    return gradient


def weighted_differences(gradient: Tensor, vectors: Tensor, others: Tensor) -> Tensor:
    """(N, D) Σ_j W_ij (y_j − x_i)."""
    with full_precision(vectors.device.type):
        sums = gradient @ torch.ones_like(others[:, :1]) if gradient.is_sparse else gradient.sum(1, keepdim=True)
        return torch.addcmul(gradient @ others, vectors, sums, value=-1)


def unit(vectors: Tensor) -> Tensor:
    """Scale rows to norm 1; a zero row stays zero and passes its gradient on unchanged."""
    if is_tracing():
        return vectors / safe_norm(vectors)
    units: Tensor = Normalize.apply(vectors)[0]  # type: ignore[no-untyped-call]
    return units


def safe_sqrt(squared: Tensor) -> Tensor:
    """√max(x, 0) with value 0 *and gradient 0* at coincident points, where a plain root has an infinite gradient."""
    distinct = squared > COINCIDENT**2
    return torch.where(distinct, torch.where(distinct, squared, 1.0).sqrt(), 0.0)


def inner_products(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, D), (R, D) → (Q, R); a set with itself has a cheaper backward."""
    if queries is not references or is_tracing():
        return queries @ references.T
    products: Tensor = SelfProducts.apply(queries)  # type: ignore[no-untyped-call]
    return products


def negative_distance(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, D), (R, D) → (Q, R) −‖q − r‖."""
    if is_tracing():
        norm_sums = squared_norms(queries)[:, None] + squared_norms(references)
        return -safe_sqrt(norm_sums - 2 * queries @ references.T)
    distance: Tensor = NegativeDistance.apply(queries, references)  # type: ignore[no-untyped-call]
    return distance


def squared_distance(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, R) ‖q‖² + ‖r‖² − 2 q·r, never below 0, and exactly 0 for coincident points."""
    norm_sums = squared_norms(queries)[:, None] + squared_norms(references)
    return torch.threshold(norm_sums - 2 * inner_products(queries, references), COINCIDENT**2, 0.0)


def squared_chord(cosine: Tensor) -> Tensor:
    """‖u − v‖² = 2 − 2 cos of unit vectors, at or below 0 where they coincide despite rounding."""
    rounding = 16 * torch.finfo(cosine.dtype).eps
    return (2 - rounding) - 2 * cosine


@torch.no_grad()
def pairwise(measure: Callable[[Tensor, Tensor], Tensor], vectors: Tensor, width: int) -> Tensor:
    """(N, N) a symmetric measure of (…, D) and (…, D) vectors, without gradient, a few rows at a time.

    `width` is the largest number of activations per pair, of which all pairs at once would hold N² times as many.
    """
    step = max(1, PAIRWISE_CHUNK_ENTRIES // (len(vectors) * width))
    whole = vectors.new_empty(len(vectors), len(vectors))
    for rows in slices(len(vectors), step):
        rest = slice(rows.start, None)
        whole[rows, rest] = measure(vectors[rows, None], vectors[None, rest])
        whole[rest, rows] = whole[rows, rest].T.clone()
    return whole
