"""Unit vectors, inner products and distances with short backward passes.

Small batches are bound by the number of operations, large ones by the number of passes over memory; both want one
node in the graph where plain arithmetic has five. Under `torch.compile` and `torch.func` plain arithmetic is used.
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
    "both_ways",
    "few_both_ways",
    "few_entries",
    "full_precision",
    "inner_products",
    "negative_distance",
    "plain_arithmetic",
    "pulled",
    "safe_sqrt",
    "squared_lengths",
    "unit",
]

COINCIDENT = 1e-7
"""Distances up to this are taken as 0, with gradient 0: the direction between coincident points is rounding noise."""

STRIP = 256
"""Rows of a symmetric matrix computed together, and the rows of one that are gone over while they are in the cache."""

WAY_BACK = 512
"""Rows of a sum M + Mᵀ that are multiplied together: fresh memory is filled slowly, small products go slowly."""

MANY_STRIPS = 4
"""From so many strips on, the half of a symmetric matrix that is saved is worth the copying."""

MANY, FEW_OF = 2**16, 32
"""From so many entries on it pays to look for those that are not 0, where they are a thirty-second or less: times the
number of threads, for products with few entries are computed by one."""

GLANCE = 16
"""Rows that tell of most matrices whether they have more than a few entries."""


def plain_arithmetic() -> bool:
    """Whether torch is compiling or transforming the computation, and wants to see each operation."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def full_precision(device: str) -> AbstractContextManager[object]:
    """Out of autocast, where it is on: similarities in half precision are too coarse."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def unit_divisor(vectors: Tensor) -> Tensor:
    """(…, 1) lengths of the rows, 1 for a zero row."""
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.threshold(norm, 1e-12, 1.0)


class Unit(torch.autograd.Function):
    """u = x / ‖x‖, ∂u = (g − u (u·g)) / ‖x‖; a zero row stays zero and passes the gradient on as it comes."""

    @staticmethod
    def forward(context: Any, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """(…, D) → (…, D) and the (…, 1) lengths they were divided by."""
        context.set_materialize_grads(False)
        divisor = unit_divisor(vectors)
        units = vectors / divisor
        context.save_for_backward(units, divisor)
        return units, divisor

    @staticmethod
    def backward(context: Any, *gradients: Tensor | None) -> Tensor | None:
        """The part of the gradient that turns the vector, over its length, and u g of the length's own gradient g."""
        units, divisor = context.saved_tensors
        of_units, of_divisor = gradients
        gradient = None
        if of_units is not None:
            along = (units * of_units).sum(-1, keepdim=True)
            gradient = torch.addcmul(of_units, units, along, value=-1) / divisor
        # The length is kept for the way back only: it has a gradient of its own where that way is differentiated.
        if of_divisor is not None:
            gradient = units * of_divisor if gradient is None else gradient + units * of_divisor
        return gradient


def few_entries(slope: Tensor, over: Tensor | None = None) -> Tensor | None:
    """A slope that is 0 for all but few pairs as a sparse matrix, for products with it; else None.

    So it is behind a hinge that most pairs are beyond, or a selection: the way back then takes a fraction of the time.
    With `over`, the entries are divided by those of a matrix of negative distances. None also where the way back is
    differentiated in turn.
    """
    if slope.numel() < MANY or not slope.is_cpu or torch.is_grad_enabled() or plain_arithmetic():
        return None
    # A look at some rows first: most slopes that have more than a few entries show it there.
    for rows in (slope[:: 1 + len(slope) // GLANCE], slope):
        present = rows.bool()
        if FEW_OF * torch.get_num_threads() * np.count_nonzero(present.numpy()) > rows.numel():
            return None
    places = flatnonzero(present)
    entries = slope.reshape(-1)[places]
    if over is not None:
        entries = over_distance(entries, over.reshape(-1)[places])
    rows = places // slope.shape[1]
    where = torch.stack([rows, places - rows * slope.shape[1]])
    return torch.sparse_coo_tensor(where, entries, slope.shape, is_coalesced=True, check_invariants=False)


def few_both_ways(places: Tensor, entries: Tensor, size: int) -> Tensor:
    """Sparse (N, N) M + Mᵀ of few entries at (2, E) places: rows and columns."""
    where, twice = torch.cat([places, places.flip(0)], 1), torch.cat([entries, entries])
    return torch.sparse_coo_tensor(where, twice, (size, size), check_invariants=False)


def both_ways(matrix: Tensor, strip: Callable[[slice, Tensor], Tensor], shares: Tensor | None = None) -> Tensor:
    """`strip(rows, M + Mᵀ of these rows)` of all rows, one strip after the other, so that no second matrix is filled.

    With `shares` it is that of M whose rows are multiplied by them. Copying the transpose first is several times faster
    than adding it column by column.
    """

    def sums(rows: slice) -> Tensor:
        turned = matrix[:, rows].contiguous().T.clone(memory_format=torch.contiguous_format)
        if shares is None:
            return turned.add_(matrix[rows])
        # Where this is differentiated in turn, what is multiplied is still needed.
        scaled = turned * shares if torch.is_grad_enabled() else turned.mul_(shares)
        return scaled.addcmul_(matrix[rows], shares[rows, None])

    size = len(matrix)
    if size <= WAY_BACK:
        return strip(slice(None), sums(slice(None)))
    parts = (slice(start, start + WAY_BACK) for start in range(0, size, WAY_BACK))
    return torch.cat([strip(rows, sums(rows)) for rows in parts])


def symmetric(vectors: Tensor, strip: Callable[[slice, slice], Tensor]) -> Tensor:
    """(N, N) of `strip(rows, columns)`, a symmetric measure of some vectors and others, each pair computed once.

    Strip by strip the entries right of the diagonal are computed, and copied to their mirror place.
    """
    size = len(vectors)
    if size < MANY_STRIPS * STRIP:
        return strip(slice(None), slice(None))
    whole = vectors.new_empty(size, size)
    for start in range(0, size, STRIP):
        rows, onwards = slice(start, start + STRIP), slice(start, None)
        whole[rows, onwards] = part = strip(rows, onwards)
        whole[onwards, rows] = part.T.contiguous()
    return whole


class SelfProducts(torch.autograd.Function):
    """S = X Xᵀ. Its gradient (G + Gᵀ) X is one matrix product; differentiating both factors apart would take two."""

    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        """(N, D) → (N, N)."""
        context.save_for_backward(vectors)
        return symmetric(vectors, lambda rows, columns: vectors[rows] @ vectors[columns].T)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """(G + Gᵀ) X."""
        vectors: Tensor = context.saved_tensors[0]
        with full_precision(vectors.device.type):
            few = few_entries(gradients[0])
            if few is not None:
                return few_both_ways(few.indices(), few.values(), len(vectors)) @ vectors
            return both_ways(gradients[0], lambda _, sums: sums @ vectors)


def squared_lengths(vectors: Tensor) -> Tensor:
    """(…, D) → (…,) ‖x‖², short by the rounding error of a matrix product of such vectors.

    So ‖q‖² + ‖r‖² − 2 q·r of coincident points comes out at or below 0, and never as a small distance: a mean over
    distances above zero would count it.
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
            products = torch.addmm(query_lengths[rows, None], queries[rows], references[columns].T, alpha=-2)
            return torch.threshold_(products.add_(reference_lengths[columns]), COINCIDENT**2, 0).sqrt_().neg_()

        distance = symmetric(queries, strip) if same else strip(slice(None), slice(None))
        context.save_for_backward(queries, references, distance)
        return distance

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """W R − q Σ_r W for the queries and Wᵀ Q − r Σ_q W for the references, W = g/d."""
        queries, references, distance = context.saved_tensors

        def pull(rows: slice, slope: Tensor) -> Tensor:
            return pulled(over_distances(slope, distance[rows]), queries[rows], references)

        few = few_entries(gradients[0], over=distance)
        if queries is references:
            if few is None:
                return both_ways(gradients[0], pull), None
            return pulled(few_both_ways(few.indices(), few.values(), len(queries)), queries, queries), None
        slope = over_distances(gradients[0].clone(), distance) if few is None else few
        wanted = context.needs_input_grad
        return (
            pulled(slope, queries, references) if wanted[0] else None,
            pulled(slope.T, references, queries) if wanted[1] else None,
        )


def over_distance(slope: Tensor, negative: Tensor) -> Tensor:
    """Numbers over the distance, in place, and 0 for coincident points."""
    return slope.div_(torch.threshold_(negative.neg(), COINCIDENT, torch.inf))


def over_distances(slope: Tensor, negative: Tensor) -> Tensor:
    """(Q, R) numbers over the distance, in place, a few rows after the other."""
    for start in range(0, len(slope), STRIP):
        rows = slice(start, start + STRIP)
        over_distance(slope[rows], negative[rows])
    return slope


def pulled(slope: Tensor, vectors: Tensor, towards: Tensor) -> Tensor:
    """(N, D) Σ_j W_ij (y_j − x_i)."""
    with full_precision(vectors.device.type):
        sums = slope @ torch.ones_like(towards[:, :1]) if slope.is_sparse else slope.sum(1, keepdim=True)
        return torch.addcmul(slope @ towards, vectors, sums, value=-1)


def unit(vectors: Tensor) -> Tensor:
    """Rows scaled to length 1; a zero row stays zero, and its gradient stays of the size of the incoming one."""
    if plain_arithmetic():
        return vectors / unit_divisor(vectors)
    units: Tensor = Unit.apply(vectors)[0]  # type: ignore[no-untyped-call]
    return units


def safe_sqrt(squared: Tensor) -> Tensor:
    """√max(x, 0) with value 0 *and gradient 0* at coincident points, where a plain root has an infinite slope."""
    apart = squared > COINCIDENT**2
    return torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)


def inner_products(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, D), (R, D) → (Q, R); a set with itself takes a cheaper way back."""
    if queries is not references or plain_arithmetic():
        return queries @ references.T
    products: Tensor = SelfProducts.apply(queries)  # type: ignore[no-untyped-call]
    return products


def negative_distance(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, D), (R, D) → (Q, R) −‖q − r‖."""
    if plain_arithmetic():
        lengths = squared_lengths(queries)[:, None] + squared_lengths(references)
        return -safe_sqrt(lengths - 2 * queries @ references.T)
    distance: Tensor = NegativeDistance.apply(queries, references)  # type: ignore[no-untyped-call]
    return distance
