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
    "squared_lengths",
    "unit",
    "weighted_differences",
]

COINCIDENT = 1e-7
"""Distances up to this are taken as 0, with gradient 0: the direction between coincident points is rounding noise."""

STRIP = 256
"""Rows of a symmetric matrix that are computed together and stay in the cache."""

BACKWARD_ROWS = 512
"""Rows of M + Mᵀ that are multiplied together: fresh memory is filled slowly, small products are slow."""

MANY_STRIPS = 4
"""From this many strips on, computing half of a symmetric matrix pays for the copying."""

ALL_ROWS = slice(None)
"""All rows at once, of which no view is made: in a small batch a view costs as much as what is computed with it."""

SMALL = 64
"""Rows up to which a transpose is added as it is."""

SPARSE_MIN_ENTRIES, SPARSE_RATIO = 2**16, 32
"""From this many entries on, listing those that are not 0 pays where they are a thirty-second or less, divided by the
number of threads, because sparse products use one."""

PAIRWISE_ENTRIES = 2**20
"""Activations that `pairwise` computes together."""

SAMPLE_ROWS = 16
"""Rows that show of most matrices whether they have more than a few entries."""


def is_tracing() -> bool:
    """Whether torch is compiling or transforming the computation and has to trace each operation."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def full_precision(device: str) -> AbstractContextManager[object]:
    """Switch autocast off, where it is on: similarities in half precision are too coarse."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def unit_divisor(vectors: Tensor) -> Tensor:
    """(…, 1) lengths of the rows, 1 for a zero row."""
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.threshold(norm, 1e-12, 1.0)


class Normalize(torch.autograd.Function):
    """u = x / ‖x‖, ∂u = (g − u (u·g)) / ‖x‖; a zero row stays zero and passes its gradient on unchanged."""

    @staticmethod
    def forward(context: Any, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """(…, D) → (…, D) and the (…, 1) lengths they were divided by."""
        context.set_materialize_grads(False)
        divisor = unit_divisor(vectors)
        units = vectors / divisor
        context.save_for_backward(units, divisor)
        return units, divisor

    @staticmethod
    def backward(context: Any, *grad_outputs: Tensor | None) -> Tensor | None:
        """The part of the gradient that turns the vector, over its length, and u g of the length's own gradient g."""
        units, divisor = context.saved_tensors
        grad_units, grad_divisor = grad_outputs
        gradient = None
        if grad_units is not None:
            along = (units * grad_units).sum(-1, keepdim=True)
            gradient = torch.addcmul(grad_units, units, along, value=-1) / divisor
        # The length is saved for backward only: it has a gradient of its own in double backward.
        if grad_divisor is not None:
            gradient = units * grad_divisor if gradient is None else gradient + units * grad_divisor
        return gradient


def take_rows(values: Tensor, rows: slice) -> Tensor:
    """Some rows, or the values themselves."""
    return values if rows is ALL_ROWS else values[rows]


def sparse_gradient(gradient: Tensor, over: Tensor | None = None) -> Tensor | None:
    """A gradient that is 0 for all but few pairs as a sparse matrix, else None.

    After a selection, or a hinge that is 0 for most pairs, backward then takes a fraction of the time. With `over`, the
    entries are divided by those of a matrix of negative distances. None also in double backward.
    """
    if gradient.numel() < SPARSE_MIN_ENTRIES or not gradient.is_cpu or torch.is_grad_enabled() or is_tracing():
        return None
    # Some rows first: they show most gradients that have more than a few entries.
    for rows in (gradient[:: 1 + len(gradient) // SAMPLE_ROWS], gradient):
        present = rows.bool()
        if SPARSE_RATIO * torch.get_num_threads() * np.count_nonzero(present.numpy()) > rows.numel():
            return None
    indices = flatnonzero(present)
    entries = gradient.reshape(-1)[indices]
    if over is not None:
        entries = divide_by_distance(entries, over.reshape(-1)[indices])
    rows = indices // gradient.shape[1]
    where = torch.stack([rows, indices - rows * gradient.shape[1]])
    return torch.sparse_coo_tensor(where, entries, gradient.shape, is_coalesced=True, check_invariants=False)


def add_sparse_transpose(indices: Tensor, entries: Tensor, size: int) -> Tensor:
    """Sparse (N, N) M + Mᵀ of few entries at (2, E) indices: rows and columns."""
    where, twice = torch.cat([indices, indices.flip(0)], 1), torch.cat([entries, entries])
    return torch.sparse_coo_tensor(where, twice, (size, size), check_invariants=False)


def map_with_transpose(
    matrix: Tensor, strip: Callable[[slice, Tensor], Tensor], row_scale: Tensor | None = None
) -> Tensor:
    """`strip(rows, M + Mᵀ of these rows)` for all rows, strip by strip, so that no second matrix is filled.

    With `row_scale` the rows of M are multiplied by it first. Copying the transpose is several times faster than adding
    it column by column.
    """

    def sums(rows: slice) -> Tensor:
        turned = matrix[:, rows].contiguous().T.clone(memory_format=torch.contiguous_format)
        if row_scale is None:
            return turned.add_(matrix[rows])
        # Double backward still needs the factor.
        scaled = turned * row_scale if torch.is_grad_enabled() else turned.mul_(row_scale)
        return scaled.addcmul_(matrix[rows], row_scale[rows, None])

    size = matrix.shape[0]
    if size <= SMALL and row_scale is None:
        return strip(ALL_ROWS, matrix + matrix.T)
    if size <= BACKWARD_ROWS:
        return strip(ALL_ROWS, sums(ALL_ROWS))
    parts = (slice(start, start + BACKWARD_ROWS) for start in range(0, size, BACKWARD_ROWS))
    return torch.cat([strip(rows, sums(rows)) for rows in parts])


def symmetric(vectors: Tensor, strip: Callable[[slice, slice], Tensor]) -> Tensor:
    """(N, N) of `strip(rows, columns)`, a symmetric measure of vectors, each pair computed once.

    Strip by strip the entries right of the diagonal are computed and mirrored.
    """
    size = vectors.shape[0]
    if size < MANY_STRIPS * STRIP:
        return strip(ALL_ROWS, ALL_ROWS)
    whole = vectors.new_empty(size, size)
    for start in range(0, size, STRIP):
        rows, onwards = slice(start, start + STRIP), slice(start, None)
        whole[rows, onwards] = part = strip(rows, onwards)
        whole[onwards, rows] = part.T.contiguous()
    return whole


class SelfProducts(torch.autograd.Function):
    """S = X Xᵀ. Its gradient (G + Gᵀ) X is one matrix product; differentiating each factor would take two."""

    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        """(N, D) → (N, N)."""
        context.save_for_backward(vectors)
        return symmetric(vectors, lambda rows, columns: take_rows(vectors, rows) @ take_rows(vectors, columns).T)

    @staticmethod
    def backward(context: Any, *grad_outputs: Tensor) -> Tensor:
        """(G + Gᵀ) X."""
        vectors: Tensor = context.saved_tensors[0]
        with full_precision(vectors.device.type):
            few = sparse_gradient(grad_outputs[0])
            if few is not None:
                return add_sparse_transpose(few.indices(), few.values(), len(vectors)) @ vectors
            return map_with_transpose(grad_outputs[0], lambda _, sums: sums @ vectors)


def squared_lengths(vectors: Tensor) -> Tensor:
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
    def forward(context: Any, queries: Tensor, references: Tensor) -> Tensor:
        """(Q, D), (R, D) → (Q, R)."""
        query_lengths = squared_lengths(queries)
        same = queries is references
        reference_lengths = query_lengths if same else squared_lengths(references)

        def strip(rows: slice, columns: slice) -> Tensor:
            own, others = take_rows(queries, rows), take_rows(references, columns)
            products = torch.addmm(query_lengths[rows, None], own, others.T, alpha=-2)
            products.add_(take_rows(reference_lengths, columns))
            return torch.threshold_(products, COINCIDENT**2, 0).sqrt_().neg_()

        distance = symmetric(queries, strip) if same else strip(ALL_ROWS, ALL_ROWS)
        context.save_for_backward(queries, references, distance)
        return distance

    @staticmethod
    def backward(context: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """W R − q Σ_r W for the queries and Wᵀ Q − r Σ_q W for the references, W = g/d."""
        queries, references, distance = context.saved_tensors

        def pull(rows: slice, gradient: Tensor) -> Tensor:
            over = divide_by_distance_chunked(gradient, take_rows(distance, rows))
            return weighted_differences(over, take_rows(queries, rows), references)

        few = sparse_gradient(grad_outputs[0], over=distance)
        if queries is references:
            if few is None:
                return map_with_transpose(grad_outputs[0], pull), None
            return weighted_differences(
                add_sparse_transpose(few.indices(), few.values(), len(queries)), queries, queries
            ), None
        gradient = divide_by_distance_chunked(grad_outputs[0].clone(), distance) if few is None else few
        wanted = context.needs_input_grad
        return (
            weighted_differences(gradient, queries, references) if wanted[0] else None,
            weighted_differences(gradient.T, references, queries) if wanted[1] else None,
        )


def divide_by_distance(gradient: Tensor, negative: Tensor) -> Tensor:
    """A gradient over the distance, in place, and 0 for coincident points."""
    return gradient.div_(torch.threshold_(negative.neg(), COINCIDENT, torch.inf))


def divide_by_distance_chunked(gradient: Tensor, negative: Tensor) -> Tensor:
    """(Q, R) gradient over the distance, in place, a few rows at a time."""
    if gradient.shape[0] <= STRIP:
        return divide_by_distance(gradient, negative)
    for start in range(0, gradient.shape[0], STRIP):
        rows = slice(start, start + STRIP)
        divide_by_distance(gradient[rows], negative[rows])
    return gradient


def weighted_differences(gradient: Tensor, vectors: Tensor, towards: Tensor) -> Tensor:
    """(N, D) Σ_j W_ij (y_j − x_i)."""
    with full_precision(vectors.device.type):
        sums = gradient @ torch.ones_like(towards[:, :1]) if gradient.is_sparse else gradient.sum(1, keepdim=True)
        return torch.addcmul(gradient @ towards, vectors, sums, value=-1)


def unit(vectors: Tensor) -> Tensor:
    """Rows scaled to length 1; a zero row stays zero and passes its gradient on unchanged."""
    if is_tracing():
        return vectors / unit_divisor(vectors)
    units: Tensor = Normalize.apply(vectors)[0]  # type: ignore[no-untyped-call]
    return units


def safe_sqrt(squared: Tensor) -> Tensor:
    """√max(x, 0) with value 0 *and gradient 0* at coincident points, where a plain root has an infinite gradient."""
    apart = squared > COINCIDENT**2
    return torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)


def inner_products(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, D), (R, D) → (Q, R); a set with itself has a cheaper backward."""
    if queries is not references or is_tracing():
        return queries @ references.T
    products: Tensor = SelfProducts.apply(queries)  # type: ignore[no-untyped-call]
    return products


def negative_distance(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, D), (R, D) → (Q, R) −‖q − r‖."""
    if is_tracing():
        lengths = squared_lengths(queries)[:, None] + squared_lengths(references)
        return -safe_sqrt(lengths - 2 * queries @ references.T)
    distance: Tensor = NegativeDistance.apply(queries, references)  # type: ignore[no-untyped-call]
    return distance


def squared_distance(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, R) ‖q‖² + ‖r‖² − 2 q·r, never below 0, and exactly 0 for coincident points."""
    lengths = squared_lengths(queries)[:, None] + squared_lengths(references)
    return torch.threshold(lengths - 2 * inner_products(queries, references), COINCIDENT**2, 0.0)


def squared_chord(cosine: Tensor) -> Tensor:
    """‖u − v‖² = 2 − 2 cos of unit vectors, at or below 0 where they coincide despite rounding."""
    rounding = 16 * torch.finfo(cosine.dtype).eps
    return (2 - rounding) - 2 * cosine


@torch.no_grad()
def pairwise(measure: Callable[[Tensor, Tensor], Tensor], vectors: Tensor, width: int) -> Tensor:
    """(N, N) a symmetric measure of (…, D) and (…, D) vectors, without gradient, a few rows at a time.

    `width` is the largest number of activations per pair, of which all pairs at once would hold N² times as many.
    """
    step = max(1, PAIRWISE_ENTRIES // (len(vectors) * width))
    whole = vectors.new_empty(len(vectors), len(vectors))
    for start in range(0, len(vectors), step):
        rows, rest = slice(start, start + step), slice(start, None)
        whole[rows, rest] = measure(vectors[rows, None], vectors[None, rest])
        whole[rest, rows] = whole[rows, rest].T.clone()
    return whole
