"""Sums, means and log-sum-exps over masks: finite, with finite gradients, also where a mask is empty.

All take a boolean `mask` and an optional `weight` (the multiplicity of each entry), both of the shape of `values`.
An empty mask gives 0 that is still connected to the graph, with gradients exactly 0.

Every reduction to a scalar ends in `ratio(numerator, denominator)`. A loss is thus a function of a few ratios of sums
over rows, which is what lets `equimetric.ops.chunks` compute it a few rows at a time without the loss knowing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import exp
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.errors import unknown_name
from equimetric.ops.masks import count_rows, has_any, to_dtype
from equimetric.ops.products import plain_arithmetic

__all__ = [
    "REDUCTIONS",
    "added",
    "bounded_exp",
    "count",
    "defer_ratios",
    "divide",
    "log1p_sum_exp",
    "log_sum_exp",
    "masked_sum",
    "mean",
    "mean_anchors",
    "mean_rows",
    "mean_valid",
    "number_to_divide_by",
    "quotient",
    "ratio",
    "ratios_are_deferred",
    "reduce",
    "reduce_rows",
    "row_max",
    "row_mean",
    "row_min",
    "row_sum",
    "scale_gradient",
    "times",
    "with_gradient",
]

FAR_BELOW = -1e30
"""Stands for −∞ in masked log-sum-exps: a row of true infinities would have NaN gradients."""


FEW = 2**14
"""Up to so many numbers the calls cost more than what they compute."""


def weigh(values: Tensor, mask: Tensor, weight: Tensor | None) -> Tensor:
    """Values inside the mask, times their multiplicity; 0 outside, whatever (Inf, NaN) stands there."""
    chosen = torch.where(mask, values, 0.0)
    return chosen if weight is None else chosen * weight


def times(mask: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """How often each entry counts: its multiplicity inside the mask, 0 outside."""
    return to_dtype(mask, dtype) if weight is None else mask * weight


def masked_sum(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """Σ values of these rows, as part of a numerator."""
    return weigh(values, mask, weight).sum()


def added(parts: Sequence[Tensor]) -> Tensor:
    """The sum of scalars, without a call where there is but one."""
    return parts[0] if len(parts) == 1 else torch.stack(list(parts)).sum()


def count(mask: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The number of entries in the mask, by multiplicity."""
    # count_nonzero, for summing booleans goes through 64-bit integers and takes twenty times as long.
    return mask.count_nonzero().to(dtype) if weight is None else (mask * weight).sum().to(dtype)


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Numerator / denominator, and 0 with gradient 0 where nothing was counted."""
    return numerator / torch.threshold(denominator, 0, torch.inf)


def scale_gradient(upstream: Tensor, slope: Tensor) -> Tensor:
    """The slope times the scalar that comes from above: a 1 from `loss.backward()`, which spares a pass.

    To ask an accelerator whether it is one takes longer.
    """
    if upstream.is_cpu and not upstream.requires_grad and not plain_arithmetic() and upstream == 1:
        return slope
    return upstream * slope


def quotient(numerator: Tensor, denominator: Tensor | None) -> Tensor:
    """Numerator / denominator, or the numerator where there is no other."""
    return numerator if denominator is None else divide(numerator, denominator)


class ClosedForm(torch.autograd.Function):
    """A value whose slope by some tensor is known beforehand."""

    @staticmethod
    def forward(context: Any, of: Tensor, value: Tensor, slope: Tensor) -> Tensor:  # noqa: ARG004
        """The value."""
        context.save_for_backward(slope)
        return value.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Its slope, times what comes from above."""
        return scale_gradient(gradients[0], context.saved_tensors[0]), None, None


def with_gradient(value: Tensor, of: Tensor, slope: Tensor) -> Tensor:
    """A scalar with a given slope, of the shape of the tensor it is a function of."""
    result: Tensor = ClosedForm.apply(of, value, slope)  # type: ignore[no-untyped-call]
    return result


class RatioTaker(Protocol):
    """Something that takes the ratios of a loss instead of dividing them."""

    def take(self, numerator: Tensor, denominator: Tensor | None) -> Tensor:
        """Take a ratio in and give what the loss is to go on with."""


_taker: ContextVar[RatioTaker | None] = ContextVar("taker", default=None)


@contextmanager
def defer_ratios(taker: RatioTaker) -> Iterator[None]:
    """Hand every ratio to `taker` inside the block."""
    token = _taker.set(taker)
    try:
        yield
    finally:
        _taker.reset(token)


def ratios_are_deferred() -> bool:
    """Whether something takes the ratios of a loss instead of dividing them."""
    return _taker.get() is not None


def ratio(numerator: Tensor, denominator: Tensor | None) -> Tensor:
    """Σ over all rows of the numerator / Σ over all rows of the denominator, a count; 0 where nothing was counted.

    The numerator carries the gradient, the denominator none. Without a denominator it is the sum: a 1 for each part
    of the rows would add up to the number of parts.
    """
    taker = None if torch.compiler.is_compiling() else _taker.get()
    return quotient(numerator, denominator) if taker is None else taker.take(numerator, denominator)


def mean(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """Σ values / number of entries."""
    return ratio(masked_sum(values, mask, weight), count(mask, weight, values.dtype))


REDUCTIONS = ("nonzero", "mean", "sum", "batch", "valid")
"""Ways to divide a sum of terms: by the number of those above zero, of all, not at all, by the number of rows, by that
of the rows that have terms."""


def number_to_divide_by(
    reduction: str, mask: Tensor, weight: Tensor | None, dtype: torch.dtype, active: Callable[[], Tensor]
) -> Tensor | None:
    """What a reduction divides Σ over a mask by, None for a plain sum; `active` counts the terms above zero."""
    if reduction not in REDUCTIONS:
        raise unknown_name("reduction", reduction, (*REDUCTIONS, "none"))
    if reduction == "nonzero":
        return active()
    if reduction == "mean":
        return count(mask, weight, dtype)
    if reduction == "sum":
        return None
    rows = torch.ones_like(mask[:, 0]) if reduction == "batch" else has_any(mask)
    return count(rows, None, dtype)


def reduce(values: Tensor, mask: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Reduce terms by name: one of `REDUCTIONS`."""
    number = number_to_divide_by(
        reduction, mask, weight, values.dtype, lambda: count(mask & (values > 0), weight, values.dtype)
    )
    return ratio(masked_sum(values, mask, weight), number)


def row_sum(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """(Q,) sum of each row's entries, of values finite everywhere.

    Those outside are multiplied by 0, which is faster than to leave them out.
    """
    sums: Tensor = torch.linalg.vecdot(values, times(mask, weight, values.dtype))
    return sums


def row_mean(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """(Q,) mean of each row's entries, of values finite everywhere; 0 for an empty row."""
    numbers = count_rows(mask).to(values.dtype) if weight is None else (mask * weight).sum(1)
    return divide(row_sum(values, mask, weight), numbers)


def mean_rows(values: Tensor) -> Tensor:
    """(Q,) → mean over all rows, those that contribute nothing included."""
    return ratio(values.sum(), values.new_full((), len(values)))


def mean_valid(values: Tensor, valid: Tensor) -> Tensor:
    """Mean over the rows that are valid; 0 where none is."""
    return mean(values, valid)


def mean_anchors(values: Tensor, valid: Tensor, denominator: str) -> Tensor:
    """Σ over the valid rows / their number ('valid') or the number of all rows ('batch')."""
    if denominator == "valid":
        return mean_valid(values, valid)
    if denominator == "batch":
        return mean_rows(torch.where(valid, values, torch.zeros_like(values)))
    raise unknown_name("denominator", denominator, ("valid", "batch"))


ROW_REDUCTIONS = ("mean", "valid", "batch", "sum", "none")


def reduce_rows(values: Tensor, valid: Tensor | None, reduction: str) -> Tensor:
    """One value per row to a scalar: 'mean' over the valid rows, also called 'valid', 'sum', 'batch' (the sum / number
    of all rows), or 'none' for the vector itself.

    `valid` is None where all rows are.
    """
    if reduction not in ROW_REDUCTIONS:
        raise unknown_name("reduction", reduction, ROW_REDUCTIONS)
    if reduction in ("mean", "valid"):
        return mean_rows(values) if valid is None else mean_valid(values, valid)
    if valid is not None:
        values = torch.where(valid, values, torch.zeros_like(values))
    if reduction == "batch":
        return mean_rows(values)
    return values if reduction == "none" else ratio(values.sum(), None)


class BoundedExp(torch.autograd.Function):
    """e^x that stops short of underflow; its own derivative, so nothing else is kept for the way back."""

    @staticmethod
    def forward(context: Any, exponent: Tensor) -> Tensor:
        """Any shape, x ≤ 0."""
        result = clamped(exponent).exp_()
        context.save_for_backward(result)
        return result

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """The gradient times e^x."""
        (result,) = context.saved_tensors
        gradient: Tensor = gradients[0] * result
        return gradient


def inside(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """(…, R) values, far below all others outside the mask, and the (…, 1) largest, −1e30 of an empty row."""
    if values.is_cpu:
        # To add 0 inside the mask and −2e30 outside is several times faster than to choose by it.
        lowered = torch.add(values, to_dtype(mask, values.dtype).sub_(1), alpha=-2 * FAR_BELOW)
        largest = lowered.amax(-1, keepdim=True)
        if largest.isfinite().all():
            return lowered, largest.clamp_min_(FAR_BELOW)
    chosen = torch.where(mask, values, -torch.inf)
    return chosen, chosen.amax(-1, keepdim=True).clamp_min_(FAR_BELOW)


class LogSumExp(torch.autograd.Function):
    """l_i = log Σ_j e^{v_ij} over a mask, with the shares p = e^{v − l}, which are its slope."""

    @staticmethod
    def forward(context: Any, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(…, R), (…, R) → (…,) and (…, R); of an empty row about −1e30 and 0."""
        context.set_materialize_grads(False)
        exponent, largest = inside(values, mask)
        lowest = least_exponent(values.dtype)
        shares = exponent.sub_(largest).clamp_(lowest, 0).exp_()
        # What was held at the lowest exponent, everything outside the mask with it, has no share.
        torch.threshold_(shares, 2 * exp(lowest), 0)
        total = shares.sum(-1, keepdim=True).clamp_min_(torch.finfo(values.dtype).tiny)
        shares.div_(total)
        context.save_for_backward(shares)
        return (total.log_() + largest)[..., 0], shares

    @staticmethod
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        """Shares p times ∂l; and p (g − Σ p g) of their own gradient g, where the slope itself is differentiated."""
        (shares,) = context.saved_tensors
        of_result, of_shares = gradients
        gradient = None if of_result is None else shares * of_result[..., None]
        if of_shares is not None:
            own = shares * (of_shares - (shares * of_shares).sum(-1, keepdim=True))
            gradient = own if gradient is None else gradient + own
        return gradient, None


def least_exponent(dtype: torch.dtype) -> float:
    """An exponent whose exponential is a normal number, though one that adds nothing to 1."""
    return -80.0 if dtype == torch.float32 else -700.0


def clamped(exponent: Tensor) -> Tensor:
    """Exponents ≤ 0 whose exponentials are normal numbers."""
    return exponent.clamp(least_exponent(exponent.dtype), 0.0)


def bounded_exp(exponent: Tensor) -> Tensor:
    """e^x for x ≤ 0, from the point on where it would leave the normal numbers held at that tiny value.

    Processors take ten to forty times as long for exponentials that underflow.
    """
    if plain_arithmetic():
        return clamped(exponent).exp()
    result: Tensor = BoundedExp.apply(exponent)  # type: ignore[no-untyped-call]
    return result


def log_sum_exp(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """(…,) log Σ_j e^{values_…j} over each row's entries; about −1e30, with gradient 0, for an empty row."""
    if weight is not None:
        values = values + torch.where(mask, weight, 1.0).log()
    if values.numel() <= FEW:
        return torch.where(mask, values, FAR_BELOW).logsumexp(-1)
    if not plain_arithmetic():
        result: Tensor = LogSumExp.apply(values, mask)[0]  # type: ignore[no-untyped-call]
        return result
    largest = row_max(values.detach(), mask).clamp_min(FAR_BELOW)
    share = torch.where(mask, clamped(values - largest).exp(), 0.0).sum(-1)
    return share.clamp_min(torch.finfo(share.dtype).tiny).log() + largest[..., 0]


def log1p_sum_exp(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """(Q,) log(1 + Σ_j e^{values_ij}) over each row's entries; 0 with gradient 0 for an empty row."""
    # Beyond the threshold the 1 is less than the rounding of float64.
    return softplus(log_sum_exp(values, mask, weight), threshold=40)


def row_max(values: Tensor, mask: Tensor) -> Tensor:
    """(…, 1) largest entry of each row; −∞ for an empty row."""
    return torch.where(mask, values, -torch.inf).amax(-1, keepdim=True)


def row_min(values: Tensor, mask: Tensor) -> Tensor:
    """(Q, 1) smallest entry of each row; +∞ for an empty row."""
    return torch.where(mask, values, torch.inf).amin(1, keepdim=True)
