"""Adversarial decorrelation of two embeddings: a regressor looks for what they share, and they hide it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from equimetric.geometry import unit

__all__ = ["Decorrelation", "reverse_gradient"]


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:  # noqa: ARG004
        return -grad_output


def reverse_gradient(values: Tensor) -> Tensor:
    """The same values; backward changes the sign of their gradient."""
    same: Tensor = _ReverseGradient.apply(values)  # type: ignore[no-untyped-call]
    return same


class Decorrelation(nn.Module):
    """−mean over images and dimensions of (n(t) ⊙ n(R(n(s))))², t the target and s the source, R a two-layer regressor.

    Minimised, the regressor makes the projected source correlate with the target. Both embeddings stand behind a
    reversed gradient and become decorrelated. Squared products are about 1/d², so weights of 100 to 2500 are usual.
    """

    def __init__(self, source: int, target: int, hidden: int = 512) -> None:
        super().__init__()
        self.regressor = nn.Sequential(nn.Linear(source, hidden), nn.ReLU(), nn.Linear(hidden, target))

    def forward(self, target: Tensor, source: Tensor) -> Tensor:
        """(B, target), (B, source) → the loss, before its weight."""
        projected = unit(self.regressor(unit(reverse_gradient(source))))
        return -(unit(reverse_gradient(target)) * projected).square().mean()
