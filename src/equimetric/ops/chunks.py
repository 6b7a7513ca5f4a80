"""Large batches a few rows at a time: the same value and gradient, in a fraction of the memory and time.

A loss over B² pairs makes a dozen passes over B² numbers forward and as many backward. Done for a few rows at a time,
they stay in the processor's cache, and the graph over the whole similarity matrix is never built. It works for every
loss whose rows meet only in its final ratios (see `ops.ratios.ratio`): the loss itself stays a plain function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from equimetric.ops.blocks import slices
from equimetric.ops.gradients import scale_saved, sum_scalars
from equimetric.ops.products import is_tracing
from equimetric.ops.ratios import defer_ratios, quotient
from equimetric.ops.rows import rows_are_separate, weigh_rows
from equimetric.pairs import Pairs

__all__ = ["compute_chunked"]

MIN_CHUNKED_PAIRS = 2**20
"""From this many pairs on, losses are computed a few rows at a time."""

CHUNK_ENTRIES = 2**19
"""Similarities in one chunk: two megabytes in single precision."""


class RatioCollector:
    """Collects the ratios of one chunk; the loss continues with their value in that chunk."""

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, Tensor | None]] = []
        """Numerators, with gradient, and denominators."""

    def handle(self, numerator: Tensor, denominator: Tensor | None) -> Tensor:
        """Keep both parts."""
        self.parts.append((numerator, None if denominator is None else denominator.detach()))
        return quotient(numerator, denominator)


class RatioReplay:
    """Returns the ratios of the whole batch, in the order in which the loss asks for them."""

    def __init__(self, ratios: Sequence[Tensor]) -> None:
        self.ratios = iter(ratios)

    def handle(self, numerator: Tensor, denominator: Tensor | None) -> Tensor:  # noqa: ARG002
        """The next ratio of the whole batch."""
        return next(self.ratios)


class Gradients:
    """Gradients of the similarities and the parameters, filled in chunk by chunk."""

    def __init__(self, similarity: Tensor, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters
        self.parts = [torch.empty_like(similarity), *map(torch.zeros_like, parameters)]

    def accumulate(
        self,
        rows: slice,
        chunk: Pairs,
        values: Sequence[Tensor],
        factors: Sequence[Tensor],
        *,
        retain_graph: bool = False,
    ) -> None:
        """Σ factor · ∂ value of one chunk; 0 for tensors on which the values do not depend."""
        connected = [(value, factor) for value, factor in zip(values, factors, strict=True) if value.requires_grad]
        gradients: Sequence[Tensor | None] = [None] * len(self.parts)
        if connected:
            # One scalar: for `grad_outputs` torch loads a library for symbolic shapes, 38 MB of it.
            with torch.enable_grad():
                total = sum_scalars([(value * factor).sum() for value, factor in connected])
            gradients = torch.autograd.grad(
                total, [chunk.similarity, *self.parameters], retain_graph=retain_graph, allow_unused=True
            )
        self.parts[0][rows] = 0 if gradients[0] is None else gradients[0]
        for whole, gradient in zip(self.parts[1:], gradients[1:], strict=True):
            if gradient is not None:
                whole += gradient

    def scale(self, factor: Tensor) -> None:
        """Multiply by a scalar."""
        for part in self.parts:
            part *= factor

    def add(self, other: Gradients, factor: Tensor) -> None:
        """Add those of another value times a scalar."""
        for part, others in zip(self.parts, other.parts, strict=True):
            part.addcmul_(others, factor)


class ChunkedLoss(torch.autograd.Function):
    """The loss L = f(N₁/D₁, …) of ratios of sums over rows, with ∂L/∂s = Σ_k ∂f/∂r_k · ∂N_k/∂s / D_k.

    A first run sums N_k and D_k over the chunks. Running the loss once more on the last chunk with the ratios of the
    whole batch gives f and ∂f/∂r. A second run over the chunks then computes Σ_k ∂f/∂r_k · ∂N_k/∂s / D_k at once.
    With a single numerator, the first run computes ∂N/∂s, which is scaled afterwards; so it does with several on an
    accelerator, where memory costs less than computing. The second run draws the same random numbers as the first,
    from torch's CPU generator or from the one given.
    """

    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[[Pairs], Tensor],
        pairs: Pairs,
        generator: torch.Generator,
        similarity: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        """The value; its gradients are computed along with it and saved."""
        step = max(1, CHUNK_ENTRIES // max(1, similarity.shape[1]))
        chunks = slices(len(similarity), step)

        def run(rows: slice, differentiate: bool = True) -> tuple[Pairs, RatioCollector]:
            chunk = pairs.rows(rows, similarity[rows].detach().requires_grad_())
            weighting = weigh_rows(chunk.query_weight)
            with torch.set_grad_enabled(differentiate), defer_ratios(collected := RatioCollector()), weighting:
                function(chunk)
            return chunk, collected

        before = generator.get_state()
        sums: list[list[Any]] = []
        accumulators: list[Gradients] = []
        one_run = True
        for rows in chunks:
            chunk, collected = run(rows, one_run)
            if not sums:
                sums = [[torch.zeros_like(n), None if d is None else torch.zeros_like(d)] for n, d in collected.parts]
                scalars = all(numerator.ndim == 0 for numerator, _ in collected.parts)
                one_run = scalars and (len(sums) == 1 or not similarity.is_cpu)
                accumulators = [Gradients(similarity, parameters) for _ in sums] if one_run else []
            for total, (numerator, denominator) in zip(sums, collected.parts, strict=True):
                total[0] += numerator.detach()
                if denominator is not None:
                    total[1] += denominator
            for i, (accumulator, (numerator, _)) in enumerate(zip(accumulators, collected.parts, strict=False)):
                accumulator.accumulate(
                    rows, chunk, [numerator], [torch.ones_like(numerator)], retain_graph=i + 1 < len(accumulators)
                )

        ratios = [quotient(numerator, denominator).requires_grad_() for numerator, denominator in sums]
        with torch.enable_grad(), defer_ratios(RatioReplay(ratios)), weigh_rows(chunk.query_weight):
            value = function(chunk)
        factors = [
            quotient(gradient, denominator)
            for gradient, (_, denominator) in zip(torch.autograd.grad(value, ratios), sums, strict=True)
        ]
        if accumulators:
            total_gradient = accumulators[0]
            total_gradient.scale(factors[0])
            for accumulator, factor in zip(accumulators[1:], factors[1:], strict=True):
                total_gradient.add(accumulator, factor)
        else:
            total_gradient = Gradients(similarity, parameters)
            after = generator.get_state()
            generator.set_state(before)
            try:
                for rows in chunks:
                    chunk, collected = run(rows)
                    total_gradient.accumulate(rows, chunk, [numerator for numerator, _ in collected.parts], factors)
            finally:
                generator.set_state(after)
        ctx.save_for_backward(*total_gradient.parts)
        return value.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the saved gradients by `grad_output`."""
        return None, None, None, *(scale_saved(grad_outputs[0], part) for part in ctx.saved_tensors)


def compute_chunked(
    function: Callable[[Pairs], Tensor],
    pairs: Pairs,
    parameters: Callable[[], Iterable[Tensor]] = tuple,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`function(pairs)`, a few rows at a time where there are many pairs; all at once while torch traces.

    `parameters()` are the learned tensors of the function; `generator` is the one it draws from, if not torch's own.
    """
    is_small = pairs.similarity.numel() < MIN_CHUNKED_PAIRS or not pairs.similarity.requires_grad
    if is_small or rows_are_separate() or is_tracing():
        return function(pairs)
    generator = torch.default_generator if generator is None else generator
    value: Tensor = ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        function, pairs, generator, pairs.similarity, *parameters()
    )
    return value
