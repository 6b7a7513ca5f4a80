"""Unit vectors, inner products and distances with short backward passes.

Small batches are bound by the number of operations, large ones by the number of passes over memory; both want one
node in the graph where plain arithmetic has five. Under `torch.compile` and `torch.func` plain arithmetic is used.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["inner_products", "negative_distance", "safe_sqrt", "unit"]

COINCIDENT = 1e-7
"""Distances up to this are taken as 0, with gradient 0: the direction between coincident points is rounding noise."""


def plain_arithmetic() -> bool:
    """Whether torch is compiling or transforming the computation, and wants to see each operation."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def scale_to_unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of length 1, and what they were divided by; a zero row is divided by 1."""
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    divisor = torch.where(norm > 1e-12, norm, 1.0)
    return vectors / divisor, divisor


class Unit(torch.autograd.Function):
    """u = x / ‖x‖, ∂u = (g − u (u·g)) / ‖x‖; a zero row stays zero and passes the gradient on as it comes."""

    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        context.save_for_backward(vectors)
        return scale_to_unit(vectors)[0]

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """The part of the gradient that turns the vector, over its length."""
        (vectors,) = context.saved_tensors
        units, divisor = scale_to_unit(vectors)
        along = (units * gradients[0]).sum(-1, keepdim=True)
        gradient: Tensor = (gradients[0] - units * along) / divisor
        return gradient


class SelfProducts(torch.autograd.Function):
    """S = X Xᵀ. Its gradient (G + Gᵀ) X is one matrix product; differentiating both factors apart would take two."""

    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        """(N, D) → (N, N)."""
        context.save_for_backward(vectors)
        return vectors @ vectors.T

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """(G + Gᵀ) X."""
        (vectors,) = context.saved_tensors
        gradient: Tensor = (gradients[0] + gradients[0].T) @ vectors
        return gradient


class NegativeDistance(torch.autograd.Function):
    """−d with d² = ‖q‖² + ‖r‖² − 2 q·r; ∂(−d)/∂(q·r) = 1/d and ∂(−d)/∂‖q‖² = −1/(2d), all 0 at d = 0."""

    @staticmethod
    def forward(context: Any, products: Tensor, query_lengths: Tensor, reference_lengths: Tensor) -> Tensor:
        """(Q, R), (Q,), (R,) squared lengths → (Q, R)."""
        squared = products.mul(-2).add_(query_lengths[:, None]).add_(reference_lengths)
        distance = squared.clamp_min_(0).sqrt_().neg_()
        context.save_for_backward(distance)
        return distance

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """g/d for the products, −½ Σ g/d for the lengths."""
        (distance,) = context.saved_tensors
        slope = gradients[0] / torch.where(distance < -COINCIDENT, -distance, torch.inf)
        return slope, slope.sum(1) / -2, slope.sum(0) / -2


def unit(vectors: Tensor) -> Tensor:
    """Rows scaled to length 1; a zero row stays zero, and its gradient stays of the size of the incoming one."""
    if plain_arithmetic():
        return scale_to_unit(vectors)[0]
    units: Tensor = Unit.apply(vectors)  # type: ignore[no-untyped-call]
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
    products = inner_products(queries, references)
    query_lengths = queries.square().sum(1)
    reference_lengths = query_lengths if queries is references else references.square().sum(1)
    if plain_arithmetic():
        return -safe_sqrt(query_lengths[:, None] + reference_lengths - 2 * products)
    distance: Tensor = NegativeDistance.apply(products, query_lengths, reference_lengths)  # type: ignore[no-untyped-call]
    return distance
