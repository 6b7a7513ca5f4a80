"""Large batches a few rows at a time: the same value and gradient, in a fraction of the memory and time.

A loss over B² pairs makes a dozen passes over B² numbers forward and as many backward. Done for a few rows at a time,
all of them stay in the processor's cache, and the graph over the whole similarity matrix is never built. It works for
every loss whose rows meet only in its final ratios (see `equimetric.reductions.ratio`): the loss itself is the plain
function that its file shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from equimetric.pairs import Pairs
from equimetric.reductions import divide, taking_ratios

__all__ = ["value_by_rows"]

LARGE = 2**20
"""From so many pairs on, losses are computed a few rows at a time."""

CHUNK_ENTRIES = 2**18
"""Similarities in one chunk: a megabyte in single precision."""


class Collect:
    """Takes the ratios of one chunk, and lets the loss go on with their value in that chunk."""

    def __init__(self) -> None:
        self.numerators: list[Tensor] = []
        self.denominators: list[Tensor] = []

    def take(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """Note both parts."""
        self.numerators.append(numerator)
        self.denominators.append(denominator.detach())
        return divide(numerator, denominator)


class Replay:
    """Gives the loss the ratios of the whole batch, in the order in which it asks for them."""

    def __init__(self, ratios: Sequence[Tensor]) -> None:
        self.ratios = iter(ratios)

    def take(self, numerator: Tensor, denominator: Tensor) -> Tensor:  # noqa: ARG002
        """The next ratio of the whole batch."""
        return next(self.ratios)


class ByRows(torch.autograd.Function):
    """The loss L = f(N₁/D₁, …) of ratios of sums over rows, with ∂L/∂s = Σ_k ∂f/∂r_k · ∂N_k/∂s / D_k.

    Chunk by chunk the ∂N_k/∂s are taken and N_k, D_k summed up; f and its derivatives come from running the loss once
    more on the last chunk with the ratios of the whole batch.
    """

    @staticmethod
    def forward(
        context: Any, function: Callable[[Pairs], Tensor], pairs: Pairs, similarity: Tensor, *parameters: Tensor
    ) -> Tensor:
        """The value; gradients are computed on the way and kept."""
        step = max(1, CHUNK_ENTRIES // max(1, similarity.shape[1]))
        chunks = [slice(start, start + step) for start in range(0, len(similarity), step)]
        sums: list[list[Tensor]] = []
        gradients: list[list[Tensor]] = []
        for rows in chunks:
            chunk = pairs.rows(rows, similarity[rows].detach().requires_grad_())
            with torch.enable_grad(), taking_ratios(collected := Collect()):
                function(chunk)
            if not sums:
                sums = [
                    [torch.zeros_like(similarity[0, 0]), torch.zeros_like(similarity[0, 0])]
                    for _ in collected.numerators
                ]
                gradients = [[torch.empty_like(similarity), *map(torch.zeros_like, parameters)] for _ in sums]
            for number, (numerator, denominator) in enumerate(
                zip(collected.numerators, collected.denominators, strict=True)
            ):
                sums[number][0] += numerator.detach()
                sums[number][1] += denominator
                shares = gradient_or_zero(numerator, [chunk.similarity, *parameters], number + 1 < len(sums))
                gradients[number][0][rows] = shares[0]
                for whole, share in zip(gradients[number][1:], shares[1:], strict=True):
                    whole += share
        ratios = [divide(numerator, denominator).requires_grad_() for numerator, denominator in sums]
        with torch.enable_grad(), taking_ratios(Replay(ratios)):
            value = function(chunk)
        slopes = torch.autograd.grad(value, ratios)
        scaled = [
            [part.mul_(divide(slope, denominator)) for part in parts]
            for slope, (_, denominator), parts in zip(slopes, sums, gradients, strict=True)
        ]
        summed = scaled[0]
        for others in scaled[1:]:
            summed = [part.add_(other) for part, other in zip(summed, others, strict=True)]
        context.save_for_backward(*summed)
        return value.detach()

    @staticmethod
    @once_differentiable
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The kept gradients, times what comes from above."""
        return None, None, *(part * upstream[0] for part in context.saved_tensors)


def gradient_or_zero(value: Tensor, inputs: Sequence[Tensor], again: bool) -> list[Tensor]:
    """∂ value / ∂ inputs, zeros where the value does not depend on them."""
    if not value.requires_grad:
        return [torch.zeros_like(one) for one in inputs]
    found = torch.autograd.grad(value, inputs, retain_graph=again, allow_unused=True)
    return [torch.zeros_like(one) if part is None else part for one, part in zip(inputs, found, strict=True)]


def value_by_rows(function: Callable[[Pairs], Tensor], pairs: Pairs, parameters: Sequence[Tensor] = ()) -> Tensor:
    """`function(pairs)`, a few rows at a time where pairs are many; `parameters` are what the function learns."""
    if pairs.similarity.numel() < LARGE or not pairs.similarity.requires_grad:
        return function(pairs)
    value: Tensor = ByRows.apply(function, pairs, pairs.similarity, *parameters)  # type: ignore[no-untyped-call]
    return value
