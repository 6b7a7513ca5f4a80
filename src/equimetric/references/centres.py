"""Several centres per class: pool their similarities to one, and measure their spread."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import unknown_name
from equimetric.ops.blocks import slices
from equimetric.ops.products import full_precision, inner_products, is_tracing

__all__ = ["centre_similarity", "centre_spread", "check_pool"]

Measure = Callable[[Tensor, Tensor], Tensor]
"""(Q, D), (R, D) → (Q, R)."""

CHUNK_ENTRIES = 2**18
"""Similarities pooled at a time: a megabyte in single precision."""

STRIP_ROWS = 512
"""Rows per matrix product in backward: small products are slow."""

POOLS = ("max", "soft")
DIVISORS = ("ordered", "unordered")


def check_pool(pool: str, divisor: str) -> None:
    """Raise an error for an unknown name."""
    if pool not in POOLS:
        raise unknown_name("pool", pool, POOLS)
    if divisor not in DIVISORS:
        raise unknown_name("divisor", divisor, DIVISORS)


def centre_major(centres: Tensor, per_class: int) -> Tensor:
    """(C·K, D) rows in class-major order as (K·C, D): the first centres of all classes, then the second ones, …

    Reductions over the K centres of a class then run over whole rows of classes, several times faster.
    """
    return centres.view(-1, per_class, centres.shape[1]).transpose(0, 1).reshape(centres.shape)


def centre_similarity(
    measure: Measure, embeddings: Tensor, centres: Tensor, per_class: int, pool: str, gamma: float
) -> Tensor:
    """(B, D) embeddings and (C·K, D) centres, class-major, → (B, C) one similarity per class.

    'max': the nearest centre alone, S_c = max_k s_ck; 'soft': S_c = Σ_k q_k s_ck with q = softmax_k(s_ck / γ).
    """
    queries, classes = len(embeddings), len(centres) // per_class
    if queries * len(centres) <= CHUNK_ENTRIES:
        similarity = measure(embeddings, centres).view(queries, classes, per_class)
        return max_pool(similarity, 2) if pool == "max" else soft_pool(similarity, gamma, 2)
    reordered = centre_major(centres, per_class)
    if pool == "soft" and measure is inner_products and not is_tracing():
        products: Tensor = PooledProducts.apply(embeddings, reordered, per_class, gamma)  # type: ignore[no-untyped-call]
        return products
    similarity = measure(embeddings, reordered).view(queries, per_class, classes)
    if pool == "max":
        return max_pool(similarity, 1)
    if is_tracing():
        return soft_pool(similarity, gamma, 1)
    pooled: Tensor = SoftPool.apply(similarity, gamma)  # type: ignore[no-untyped-call]
    return pooled


def max_pool(similarity: Tensor, dim: int) -> Tensor:
    """The largest similarity over one dimension; its gradient goes to one centre, also with ties."""
    return similarity.max(dim=dim).values


def soft_pool(similarity: Tensor, gamma: float, dim: int) -> Tensor:
    """Σ_k q_k s_k with q = softmax_k(s_k / γ), over one dimension."""
    return ((similarity / gamma).softmax(dim=dim) * similarity).sum(dim=dim)


def soft_pool_chunked(similarity: Tensor, gamma: float) -> Tensor:
    """`soft_pool` of (B, K, C) similarities, a few rows at a time."""
    return torch.cat([soft_pool(similarity[rows], gamma, 1) for rows in row_chunks(similarity)])


def soft_pool_gradient(similarity: Tensor, pooled: Tensor, gamma: float, grad_output: Tensor) -> Tensor:
    """(B, K, C) grad_output · ∂S/∂s_k = grad_output · q_k (1 + (s_k − S)/γ) of `soft_pool` S, a few rows at a time."""
    gradient = torch.empty_like(similarity)
    for rows in row_chunks(similarity):
        above_mean = (similarity[rows] - pooled[rows, None]) / gamma
        probs = (similarity[rows] / gamma).softmax(dim=1)
        gradient[rows] = (above_mean + 1) * probs * grad_output[rows, None]
    return gradient


class SoftPool(torch.autograd.Function):
    """`soft_pool` that does not save q for backward."""

    @staticmethod
    def forward(ctx: Any, similarity: Tensor, gamma: float) -> Tensor:
        """(B, K, C) → (B, C)."""
        ctx.gamma = gamma
        pooled = soft_pool_chunked(similarity, gamma)
        ctx.save_for_backward(similarity, pooled)
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return `soft_pool_gradient`."""
        similarity, pooled = ctx.saved_tensors
        return soft_pool_gradient(similarity, pooled, ctx.gamma, gradients[0]), None


class PooledProducts(torch.autograd.Function):
    """`soft_pool` of inner products X Wᵀ that stores neither q nor the gradient by all products.

    With G the gradient by the products, ∂X = G W and ∂W = Gᵀ X, one strip of rows after the other.
    """

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, centres: Tensor, per_class: int, gamma: float) -> Tensor:
        """(B, D), (K·C, D) centres, centre-major, → (B, C)."""
        ctx.gamma = gamma
        products = (embeddings @ centres.T).view(len(embeddings), per_class, -1)
        pooled = soft_pool_chunked(products, gamma)
        ctx.save_for_backward(embeddings, centres, products, pooled)
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """∂X and ∂W."""
        embeddings, centres, products, pooled = ctx.saved_tensors
        if torch.is_grad_enabled():
            # For second derivatives the products must be functions of both factors.
            products = (embeddings @ centres.T).view(products.shape)
        by_embeddings, by_centres = [], torch.zeros_like(centres)
        with full_precision(embeddings.device.type):
            for rows in slices(len(embeddings), STRIP_ROWS):
                strip = soft_pool_gradient(products[rows], pooled[rows], ctx.gamma, gradients[0][rows]).flatten(1)
                by_embeddings.append(strip @ centres)
                by_centres.addmm_(strip.T, embeddings[rows])
        return torch.cat(by_embeddings), by_centres, None, None


def row_chunks(similarity: Tensor) -> list[slice]:
    """Slices of rows that fit into the processor's cache."""
    return slices(len(similarity), max(1, CHUNK_ENTRIES // similarity[0].numel()))


def centre_spread(centres: Tensor, divisor: str) -> Tensor:
    """R = Σ_c Σ_{t<s} √(2 + 1e-5 − 2 w_ct·w_cs) / divisor of (C, K, D) unit centres; 0 for K = 1.

    The divisor is C·K·(K − 1) ('ordered' pairs, though each is summed once) or half of it ('unordered': the mean).
    The 1e-5 keeps the gradient finite where two centres of a class coincide.
    """
    classes, per_class, _ = centres.shape
    cosine = centres @ centres.transpose(1, 2)
    pairs = classes * per_class * (per_class - 1) / (1 if divisor == "ordered" else 2)
    return (2 + 1e-5 - 2 * cosine).clamp_min(1e-5).sqrt().triu(1).sum() / max(pairs, 1)
