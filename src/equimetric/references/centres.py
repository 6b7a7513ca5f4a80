"""Several representatives per class: one similarity from many, and how far the representatives lie apart."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import unknown_name
from equimetric.ops.products import full_precision, inner_products, plain_arithmetic

__all__ = ["centre_similarity", "centre_spread", "check_pool"]

Measure = Callable[[Tensor, Tensor], Tensor]
"""(Q, D), (R, D) → (Q, R)."""

TOGETHER = 2**18
"""Similarities that are pooled together: a megabyte in single precision."""

STRIP = 512
"""Rows whose slopes are multiplied together: small products go slowly."""

POOLS = ("max", "soft")
DIVISORS = ("ordered", "unordered")


def check_pool(pool: str, divisor: str) -> None:
    """Refuse names that are not known."""
    if pool not in POOLS:
        raise unknown_name("pool", pool, POOLS)
    if divisor not in DIVISORS:
        raise unknown_name("divisor", divisor, DIVISORS)


def number_by_number(centres: Tensor, per_class: int) -> Tensor:
    """(C·K, D) rows, class by class, as (K·C, D): the first centres of all classes, then the second ones, and so on.

    What is computed over the K centres of a class then runs over whole rows of classes, several times faster.
    """
    return centres.view(-1, per_class, centres.shape[1]).transpose(0, 1).reshape(centres.shape)


def centre_similarity(
    measure: Measure, embeddings: Tensor, centres: Tensor, per_class: int, pool: str, gamma: float
) -> Tensor:
    """(B, D) embeddings and (C·K, D) centres, class by class, → (B, C) one similarity per class.

    'max': the nearest centre alone, S_c = max_k s_ck; 'soft': S_c = Σ_k q_k s_ck with q = softmax_k(s_ck / γ).
    """
    queries, classes = len(embeddings), len(centres) // per_class
    if queries * len(centres) <= TOGETHER:
        similarity = measure(embeddings, centres).view(queries, classes, per_class)
        return nearest(similarity, 2) if pool == "max" else soft_pool(similarity, gamma, 2)
    by_number = number_by_number(centres, per_class)
    if pool == "soft" and measure is inner_products and not plain_arithmetic():
        products: Tensor = PooledProducts.apply(embeddings, by_number, per_class, gamma)  # type: ignore[no-untyped-call]
        return products
    similarity = measure(embeddings, by_number).view(queries, per_class, classes)
    if pool == "max":
        return nearest(similarity, 1)
    if plain_arithmetic():
        return soft_pool(similarity, gamma, 1)
    pooled: Tensor = SoftPool.apply(similarity, gamma)  # type: ignore[no-untyped-call]
    return pooled


def nearest(similarity: Tensor, over: int) -> Tensor:
    """The largest similarity over one of the dimensions; its gradient goes to one centre, also among equals."""
    return similarity.max(dim=over).values


def soft_pool(similarity: Tensor, gamma: float, over: int) -> Tensor:
    """Σ_k q_k s_k with q = softmax_k(s_k / γ), over one of the dimensions."""
    return ((similarity / gamma).softmax(dim=over) * similarity).sum(dim=over)


def soft_pool_by_rows(similarity: Tensor, gamma: float) -> Tensor:
    """`soft_pool` of many (B, K, C) similarities."""
    return torch.cat([soft_pool(similarity[rows], gamma, 1) for rows in few_rows(similarity)])


def soft_pool_slope(similarity: Tensor, pooled: Tensor, gamma: float, upstream: Tensor) -> Tensor:
    """(B, K, C) upstream · ∂S/∂s_k = upstream · q_k (1 + (s_k − S)/γ) of `soft_pool` S, a few rows at a time."""
    slope = torch.empty_like(similarity)
    for rows in few_rows(similarity):
        above_mean = (similarity[rows] - pooled[rows, None]) / gamma
        share = (similarity[rows] / gamma).softmax(dim=1)
        slope[rows] = (above_mean + 1) * share * upstream[rows, None]
    return slope


class SoftPool(torch.autograd.Function):
    """`soft_pool` of many similarities: no q is kept."""

    @staticmethod
    def forward(context: Any, similarity: Tensor, gamma: float) -> Tensor:
        """(B, K, C) → (B, C)."""
        context.gamma = gamma
        pooled = soft_pool_by_rows(similarity, gamma)
        context.save_for_backward(similarity, pooled)
        return pooled

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The slope, times what comes from above."""
        similarity, pooled = context.saved_tensors
        return soft_pool_slope(similarity, pooled, context.gamma, gradients[0]), None


class PooledProducts(torch.autograd.Function):
    """`soft_pool` of many inner products X Wᵀ: neither q nor the slope by all of the products is ever kept.

    With G the slope by the products, ∂X = G W and ∂W = Gᵀ X, a strip of rows after the other.
    """

    @staticmethod
    def forward(context: Any, embeddings: Tensor, centres: Tensor, per_class: int, gamma: float) -> Tensor:
        """(B, D), (K·C, D) centres number by number → (B, C)."""
        context.gamma = gamma
        products = (embeddings @ centres.T).view(len(embeddings), per_class, -1)
        pooled = soft_pool_by_rows(products, gamma)
        context.save_for_backward(embeddings, centres, products, pooled)
        return pooled

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """As the formula says."""
        embeddings, centres, products, pooled = context.saved_tensors
        if torch.is_grad_enabled():
            # Where the slope itself is differentiated, the products are once more functions of both factors.
            products = (embeddings @ centres.T).view(products.shape)
        of_embeddings, of_centres = [], torch.zeros_like(centres)
        with full_precision(embeddings.device.type):
            for start in range(0, len(embeddings), STRIP):
                rows = slice(start, start + STRIP)
                slope = soft_pool_slope(products[rows], pooled[rows], context.gamma, gradients[0][rows]).flatten(1)
                of_embeddings.append(slope @ centres)
                of_centres.addmm_(slope.T, embeddings[rows])
        return torch.cat(of_embeddings), of_centres, None, None


def few_rows(similarity: Tensor) -> list[slice]:
    """Rows that stay in the processor's cache together."""
    step = max(1, TOGETHER // similarity[0].numel())
    return [slice(start, start + step) for start in range(0, len(similarity), step)]


def centre_spread(centres: Tensor, divisor: str) -> Tensor:
    """R = Σ_c Σ_{t<s} √(2 + 1e-5 − 2 w_ct·w_cs) / divisor of (C, K, D) unit centres; 0 for K = 1.

    The divisor is C·K·(K − 1) ('ordered' pairs, though each is summed once) or half of it ('unordered': the mean).
    The 1e-5 keeps the slope finite where two centres of a class coincide.
    """
    classes, per_class, _ = centres.shape
    cosine = centres @ centres.transpose(1, 2)
    pairs = classes * per_class * (per_class - 1) / (1 if divisor == "ordered" else 2)
    return (2 + 1e-5 - 2 * cosine).clamp_min(1e-5).sqrt().triu(1).sum() / max(pairs, 1)
