"""Large batches a few rows at a time: the same value and gradient, in a fraction of the memory and time.

A loss over B² pairs makes a dozen passes over B² numbers forward and as many backward. Done for a few rows at a time,
all of them stay in the processor's cache, and the graph over the whole similarity matrix is never built. It works for
every loss whose rows meet only in its final ratios (see `ops.reductions.ratio`): the loss itself is the plain
function that its file shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from equimetric.ops.reductions import added, defer_ratios, quotient, scale_gradient
from equimetric.pairs import Pairs

__all__ = ["compute_chunked"]

LARGE = 2**20
"""From so many pairs on, losses are computed a few rows at a time."""

CHUNK_ENTRIES = 2**19
"""Similarities in one chunk: two megabytes in single precision."""


class Collect:
    """Takes the ratios of one chunk, and lets the loss go on with their value in that chunk."""

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, Tensor | None]] = []
        """Numerators, with gradient, and denominators."""

    def take(self, numerator: Tensor, denominator: Tensor | None) -> Tensor:
        """Note both parts."""
        self.parts.append((numerator, None if denominator is None else denominator.detach()))
        return quotient(numerator, denominator)


class Replay:
    """Gives the loss the ratios of the whole batch, in the order in which it asks for them."""

    def __init__(self, ratios: Sequence[Tensor]) -> None:
        self.ratios = iter(ratios)

    def take(self, numerator: Tensor, denominator: Tensor | None) -> Tensor:  # noqa: ARG002
        """The next ratio of the whole batch."""
        return next(self.ratios)


class Gradients:
    """∂ by the similarities and the parameters, filled in chunk by chunk."""

    def __init__(self, similarity: Tensor, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters
        self.parts = [torch.empty_like(similarity), *map(torch.zeros_like, parameters)]

    def take(
        self, rows: slice, chunk: Pairs, values: Sequence[Tensor], slopes: Sequence[Tensor], *, again: bool = False
    ) -> None:
        """Σ slope · ∂ value of one chunk; 0 by what the values do not depend on."""
        connected = [(value, slope) for value, slope in zip(values, slopes, strict=True) if value.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(self.parts)
        if connected:
            # One scalar: to take slopes beside values, torch loads a library for symbolic shapes, 38 MB of it.
            with torch.enable_grad():
                total = added([(value * slope).sum() for value, slope in connected])
            found = torch.autograd.grad(
                total, [chunk.similarity, *self.parameters], retain_graph=again, allow_unused=True
            )
        self.parts[0][rows] = 0 if found[0] is None else found[0]
        for whole, share in zip(self.parts[1:], found[1:], strict=True):
            if share is not None:
                whole += share

    def scale(self, factor: Tensor) -> None:
        """Times a scalar."""
        for part in self.parts:
            part *= factor

    def add(self, other: Gradients, factor: Tensor) -> None:
        """Plus those of another value, times a scalar."""
        for part, others in zip(self.parts, other.parts, strict=True):
            part.addcmul_(others, factor)


class ByRows(torch.autograd.Function):
    """The loss L = f(N₁/D₁, …) of ratios of sums over rows, with ∂L/∂s = Σ_k ∂f/∂r_k · ∂N_k/∂s / D_k.

    Chunk by chunk N_k and D_k are summed up; f and its derivatives come from running the loss once more on the last
    chunk with the ratios of the whole batch; a second run over the chunks, with ∂f/∂r known, then takes
    Σ_k ∂f/∂r_k · ∂N_k/∂s / D_k at once. With a single numerator, ∂N/∂s is taken in the first run and scaled afterwards.
    So it is with several of them on an accelerator, where memory costs less than computing. A second run draws at
    random what the first has drawn, from torch's generator of the CPU or from the one given.
    """

    @staticmethod
    def forward(
        context: Any,
        function: Callable[[Pairs], Tensor],
        pairs: Pairs,
        generator: torch.Generator,
        similarity: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        """The value; gradients are computed on the way and kept."""
        step = max(1, CHUNK_ENTRIES // max(1, similarity.shape[1]))
        chunks = [slice(start, start + step) for start in range(0, len(similarity), step)]

        def run(rows: slice, differentiate: bool = True) -> tuple[Pairs, Collect]:
            chunk = pairs.rows(rows, similarity[rows].detach().requires_grad_())
            with torch.set_grad_enabled(differentiate), defer_ratios(collected := Collect()):
                function(chunk)
            return chunk, collected

        before = generator.get_state()
        sums: list[list[Any]] = []
        kept: list[Gradients] = []
        one_run = True
        for rows in chunks:
            chunk, collected = run(rows, one_run)
            if not sums:
                sums = [[torch.zeros_like(n), None if d is None else torch.zeros_like(d)] for n, d in collected.parts]
                scalars = all(numerator.ndim == 0 for numerator, _ in collected.parts)
                one_run = scalars and (len(sums) == 1 or not similarity.is_cpu)
                kept = [Gradients(similarity, parameters) for _ in sums] if one_run else []
            for total, (numerator, denominator) in zip(sums, collected.parts, strict=True):
                total[0] += numerator.detach()
                if denominator is not None:
                    total[1] += denominator
            for number, (gradients, (numerator, _)) in enumerate(zip(kept, collected.parts, strict=False)):
                gradients.take(rows, chunk, [numerator], [torch.ones_like(numerator)], again=number + 1 < len(kept))

        ratios = [quotient(numerator, denominator).requires_grad_() for numerator, denominator in sums]
        with torch.enable_grad(), defer_ratios(Replay(ratios)):
            value = function(chunk)
        slopes = [
            quotient(slope, denominator)
            for slope, (_, denominator) in zip(torch.autograd.grad(value, ratios), sums, strict=True)
        ]
        if kept:
            summed = kept[0]
            summed.scale(slopes[0])
            for gradients, slope in zip(kept[1:], slopes[1:], strict=True):
                summed.add(gradients, slope)
        else:
            summed = Gradients(similarity, parameters)
            after = generator.get_state()
            generator.set_state(before)
            try:
                for rows in chunks:
                    chunk, collected = run(rows)
                    summed.take(rows, chunk, [numerator for numerator, _ in collected.parts], slopes)
            finally:
                generator.set_state(after)
        context.save_for_backward(*summed.parts)
        return value.detach()

    @staticmethod
    @once_differentiable
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The kept gradients, times what comes from above."""
        return None, None, None, *(scale_gradient(upstream[0], part) for part in context.saved_tensors)


def compute_chunked(
    function: Callable[[Pairs], Tensor],
    pairs: Pairs,
    parameters: Callable[[], Iterable[Tensor]] = tuple,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`function(pairs)`, a few rows at a time where pairs are many.

    `parameters()` are what the function learns, `generator` is what it draws from, if not torch's of the CPU.
    """
    if pairs.similarity.numel() < LARGE or not pairs.similarity.requires_grad:
        return function(pairs)
    drawn_from = torch.default_generator if generator is None else generator
    value: Tensor = ByRows.apply(  # type: ignore[no-untyped-call]
        function, pairs, drawn_from, pairs.similarity, *parameters()
    )
    return value
