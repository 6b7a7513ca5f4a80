"""Signal-to-noise ratios of two sets of vectors."""

from typing import Any

import torch
from torch import Tensor

from equimetric.ops.products import (
    add_sparse_transpose,
    is_tracing,
    map_with_transpose,
    sparse_gradient,
    squared_norms,
    weighted_differences,
)

__all__ = ["negative_noise"]

MIN_POWER = 1e-12
"""Keeps the noise-to-signal ratio of a constant vector, which has no signal, finite."""


def negative_noise(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, R) −var(q − r) / var(q), variances over the coordinates; not symmetric: the query is the signal.

    With centred vectors −‖q − r‖² / ‖q‖² = [2q, −1, −‖q‖²] · [r, ‖r‖², 1] / ‖q‖²: one matrix product of two more
    dimensions. Norms are slightly short, so coincident points have a similarity of 0 or more: a mean over nonzero
    noise must not count rounding.
    """
    if references is queries and not is_tracing():
        noise: Tensor = SelfNoise.apply(queries)  # type: ignore[no-untyped-call]
        return noise
    (signals, power, inv_power), (reference_signals, other_power, _) = (
        centre_signals(queries),
        centre_signals(references),
    )
    left = torch.cat([2 * signals, -torch.ones_like(power), -power], 1) * inv_power
    return left @ torch.cat([reference_signals, other_power, torch.ones_like(other_power)], 1).T


class SelfNoise(torch.autograd.Function):
    """s_ij = (2 x_i·x_j − p_j − p_i) / p_i with p = ‖x‖², within one set: one matrix product in backward, not two.

    Here x are the centred vectors. With H = G/p by rows, ∂x_i = Σ_j 2 (H + Hᵀ)_ij (x_j − x_i) − 2 x_i Σ_j H_ij s_ij.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        """(N, D) → (N, N)."""
        signals, power, inv_power = centre_signals(vectors)
        noise = ((signals * (2 * inv_power)) @ signals.T).addcmul_(inv_power, power.T, value=-1).sub_(power * inv_power)
        ctx.save_for_backward(vectors, noise, signals, inv_power)
        return noise

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """∂x of the formula, centred: a step common to all coordinates changes no centred vector."""
        vectors, noise, signals, inv_power = ctx.saved_tensors
        if torch.is_grad_enabled():
            # For second derivatives these must be functions of the vectors.
            signals, _, inv_power = centre_signals(vectors)
        sparse_grad = sparse_gradient(gradients[0])
        if sparse_grad is None:
            weighted_noise = torch.linalg.vecdot(gradients[0], noise)[:, None] * inv_power
            pull = map_with_transpose(
                gradients[0], lambda rows, sums: weighted_differences(sums, signals[rows], signals), inv_power[:, 0]
            )
        else:
            row, column = sparse_grad.indices()
            scaled = sparse_grad.values() * inv_power[row, 0]
            weighted_noise = torch.zeros_like(inv_power).index_add_(0, row, (scaled * noise[row, column])[:, None])
            pull = weighted_differences(
                add_sparse_transpose(sparse_grad.indices(), scaled, len(signals)), signals, signals
            )
        return centre(torch.addcmul(pull, signals, weighted_noise, value=-1)).mul_(2)


def centre_signals(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centred vectors, their (N, 1) powers, slightly short, and the reciprocals of these."""
    signals = centre(vectors)
    power = squared_norms(signals)[:, None]
    return signals, power, (power + MIN_POWER).reciprocal()


def centre(vectors: Tensor) -> Tensor:
    """Subtract from each vector the mean of its coordinates."""
    return vectors - vectors.mean(1, keepdim=True)
