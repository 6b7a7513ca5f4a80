"""Signal-to-noise ratios of two sets of vectors."""

from typing import Any

import torch
from torch import Tensor

from equimetric.ops.products import (
    add_sparse_transpose,
    is_tracing,
    map_with_transpose,
    sparse_gradient,
    squared_lengths,
    weighted_differences,
)

__all__ = ["negative_noise"]

MIN_POWER = 1e-12
"""Keeps the noise-to-signal ratio of a constant vector, which has no signal, finite."""


def negative_noise(queries: Tensor, references: Tensor) -> Tensor:
    """(Q, R) −var(q − r) / var(q), variances over the coordinates; not symmetric: the query is the signal.

    With centred vectors −‖q − r‖² / ‖q‖² = [2q, −1, −‖q‖²] · [r, ‖r‖², 1] / ‖q‖²: one matrix product of two more
    dimensions. Lengths are slightly short, so coincident points have a similarity of 0 or more: a mean over nonzero
    noise must not count rounding.
    """
    if references is queries and not is_tracing():
        noise: Tensor = SelfNoise.apply(queries)  # type: ignore[no-untyped-call]
        return noise
    (signals, power, shares), (others, other_power, _) = centre_signals(queries), centre_signals(references)
    ends = torch.cat([2 * signals, -torch.ones_like(power), -power], 1) * shares
    return ends @ torch.cat([others, other_power, torch.ones_like(other_power)], 1).T


class SelfNoise(torch.autograd.Function):
    """s_ij = (2 x_i·x_j − p_j − p_i) / p_i with p = ‖x‖², within one set: one matrix product in backward, not two.

    Here x are the centred vectors. With H = G/p by rows, ∂x_i = Σ_j 2 (H + Hᵀ)_ij (x_j − x_i) − 2 x_i Σ_j H_ij s_ij.
    """

    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        """(N, D) → (N, N)."""
        signals, power, shares = centre_signals(vectors)
        noise = ((signals * (2 * shares)) @ signals.T).addcmul_(shares, power.T, value=-1).sub_(power * shares)
        context.save_for_backward(vectors, noise, signals, shares)
        return noise

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """∂x of the formula, centred: a step common to all coordinates changes no centred vector."""
        vectors, noise, signals, shares = context.saved_tensors
        if torch.is_grad_enabled():
            # For second derivatives these must be functions of the vectors.
            signals, _, shares = centre_signals(vectors)
        few = sparse_gradient(gradients[0])
        if few is None:
            own = torch.linalg.vecdot(gradients[0], noise)[:, None] * shares
            pull = map_with_transpose(
                gradients[0], lambda rows, sums: weighted_differences(sums, signals[rows], signals), shares[:, 0]
            )
        else:
            row, column = few.indices()
            scaled = few.values() * shares[row, 0]
            own = torch.zeros_like(shares).index_add_(0, row, (scaled * noise[row, column])[:, None])
            pull = weighted_differences(add_sparse_transpose(few.indices(), scaled, len(signals)), signals, signals)
        return centre(torch.addcmul(pull, signals, own, value=-1)).mul_(2)


def centre_signals(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centred vectors, their (N, 1) powers, slightly short, and the reciprocals of these."""
    signals = centre(vectors)
    power = squared_lengths(signals)[:, None]
    return signals, power, (power + MIN_POWER).reciprocal()


def centre(vectors: Tensor) -> Tensor:
    """Subtract from each vector the mean of its coordinates."""
    return vectors - vectors.mean(1, keepdim=True)
