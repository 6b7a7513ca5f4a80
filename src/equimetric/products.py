"""Inner products and distances with backward passes that touch memory as little as can be."""

from typing import Any

import torch
from torch import Tensor

__all__ = ["inner_products", "negative_distance"]

COINCIDENT = 1e-7
"""Distances up to this are taken as 0, with gradient 0: the direction between coincident points is rounding noise."""


class SelfProducts(torch.autograd.Function):
    """S = X Xᵀ. Its gradient (G + Gᵀ) X is one matrix product; differentiating both factors apart would take two."""

    @staticmethod
    def forward(vectors: Tensor) -> Tensor:
        """(N, D) → (N, N)."""
        return vectors @ vectors.T

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        """Keep the vectors."""
        context.save_for_backward(inputs[0])

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """(G + Gᵀ) X."""
        (vectors,) = context.saved_tensors
        gradient: Tensor = (gradients[0] + gradients[0].T) @ vectors
        return gradient


class NegativeDistance(torch.autograd.Function):
    """−d with d² = ‖q‖² + ‖r‖² − 2 q·r; ∂(−d)/∂(q·r) = 1/d and ∂(−d)/∂‖q‖² = −1/(2d), all 0 at d = 0."""

    @staticmethod
    def forward(products: Tensor, query_lengths: Tensor, reference_lengths: Tensor) -> Tensor:
        """(Q, R), (Q,), (R,) squared lengths → (Q, R)."""
        squared = products.mul(-2).add_(query_lengths[:, None]).add_(reference_lengths)
        return squared.clamp_min_(0).sqrt_().neg_()

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG004
        """Keep the distances."""
        context.save_for_backward(output)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """g/d for the products, −½ Σ g/d for the lengths."""
        (negative_distance,) = context.saved_tensors
        slope = gradients[0] / torch.where(negative_distance < -COINCIDENT, -negative_distance, torch.inf)
        return slope, slope.sum(1) / -2, slope.sum(0) / -2


def inner_products(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, D), (R, D) → (Q, R); a set with itself takes a cheaper way back."""
    if queries is references:
        products: Tensor = SelfProducts.apply(queries)  # type: ignore[no-untyped-call]
        return products
    return queries @ references.T


def negative_distance(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, D), (R, D) → (Q, R) −‖q − r‖."""
    lengths = [vectors.square().sum(1) for vectors in (queries, references)]
    distance: Tensor = NegativeDistance.apply(inner_products(queries, references), *lengths)  # type: ignore[no-untyped-call]
    return distance
