"""Log-sum-exps over masks: finite, with finite gradients, also where a mask is empty or an exponential underflows."""

from math import exp
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.ops.masks import to_dtype
from equimetric.ops.products import is_tracing
from equimetric.ops.reductions import row_max

__all__ = ["FAR_BELOW", "bounded_exp", "log1p_sum_exp", "log_sum_exp", "row_violation"]

FAR_BELOW = -1e30
"""Stands for −∞ in masked log-sum-exps: a row of true infinities would have NaN gradients."""

SMALL_NUMEL = 2**14
"""Up to this many numbers, calls cost more than what they compute."""


class BoundedExp(torch.autograd.Function):
    """e^x that stops short of underflow; it is its own derivative, so nothing else is saved for backward."""

    @staticmethod
    def forward(context: Any, exponent: Tensor) -> Tensor:
        """Any shape, x ≤ 0."""
        result = clamp_exponent(exponent).exp_()
        context.save_for_backward(result)
        return result

    @staticmethod
    def backward(context: Any, *grad_outputs: Tensor) -> Tensor:
        """`grad_output` times e^x."""
        (result,) = context.saved_tensors
        gradient: Tensor = grad_outputs[0] * result
        return gradient


def lower_outside(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """(…, R) values, far below all others outside the mask, and the (…, 1) largest, −1e30 of an empty row."""
    if values.is_cpu:
        # Adding 0 inside the mask and −2e30 outside is several times faster than torch.where.
        lowered = torch.add(values, to_dtype(mask, values.dtype).sub_(1), alpha=-2 * FAR_BELOW)
        largest = lowered.amax(-1, keepdim=True)
        if largest.isfinite().all():
            return lowered, largest.clamp_min_(FAR_BELOW)
    chosen = torch.where(mask, values, -torch.inf)
    return chosen, chosen.amax(-1, keepdim=True).clamp_min_(FAR_BELOW)


class LogSumExp(torch.autograd.Function):
    """l_i = log Σ_j e^{v_ij} over a mask, and the shares p = e^{v − l}, which are its gradient."""

    @staticmethod
    def forward(context: Any, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(…, R), (…, R) → (…,) and (…, R); of an empty row about −1e30 and 0."""
        context.set_materialize_grads(False)
        exponent, largest = lower_outside(values, mask)
        lowest = least_exponent(values.dtype)
        shares = exponent.sub_(largest).clamp_(lowest, 0).exp_()
        # What was clamped, everything outside the mask included, has no share.
        torch.threshold_(shares, 2 * exp(lowest), 0)
        total = shares.sum(-1, keepdim=True).clamp_min_(torch.finfo(values.dtype).tiny)
        shares.div_(total)
        context.save_for_backward(shares)
        return (total.log_() + largest)[..., 0], shares

    @staticmethod
    def backward(context: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, None]:
        """P · ∂l, plus p (g − Σ p g) of the shares' own gradient g, where the gradient itself is differentiated."""
        (shares,) = context.saved_tensors
        grad_result, grad_shares = grad_outputs
        gradient = None if grad_result is None else shares * grad_result[..., None]
        if grad_shares is not None:
            own = shares * (grad_shares - (shares * grad_shares).sum(-1, keepdim=True))
            gradient = own if gradient is None else gradient + own
        return gradient, None


def least_exponent(dtype: torch.dtype) -> float:
    """An exponent whose exponential is a normal number, though one that adds nothing to 1."""
    return -80.0 if dtype == torch.float32 else -700.0


def clamp_exponent(exponent: Tensor) -> Tensor:
    """Exponents ≤ 0 whose exponentials are normal numbers."""
    return exponent.clamp(least_exponent(exponent.dtype), 0.0)


def bounded_exp(exponent: Tensor) -> Tensor:
    """e^x for x ≤ 0, at least a tiny normal number: exponentials that underflow are ten to forty times slower."""
    if is_tracing():
        return clamp_exponent(exponent).exp()
    result: Tensor = BoundedExp.apply(exponent)  # type: ignore[no-untyped-call]
    return result


def log_sum_exp(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """(…,) log Σ_j e^{values_…j} over each row's entries; about −1e30, with gradient 0, for an empty row."""
    if weight is not None:
        values = values + torch.where(mask, weight, 1.0).log()
    if values.numel() <= SMALL_NUMEL:
        return torch.where(mask, values, FAR_BELOW).logsumexp(-1)
    if not is_tracing():
        result: Tensor = LogSumExp.apply(values, mask)[0]  # type: ignore[no-untyped-call]
        return result
    largest = row_max(values.detach(), mask).clamp_min(FAR_BELOW)
    share = torch.where(mask, clamp_exponent(values - largest).exp(), 0.0).sum(-1)
    return share.clamp_min(torch.finfo(share.dtype).tiny).log() + largest[..., 0]


def log1p_sum_exp(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """(Q,) log(1 + Σ_j e^{values_ij}) over each row's entries; 0 with gradient 0 for an empty row."""
    # Beyond the threshold the 1 is less than the rounding of float64.
    return softplus(log_sum_exp(values, mask, weight), threshold=40)


def row_violation(violation: Tensor, mask: Tensor, weight: Tensor | None, temperature: float) -> Tensor:
    """(Q,) Σ w v / Σ w over the entries v > 0 of each row, w = e^{T v} held constant; 0 where there are none."""
    with torch.no_grad():
        nontrivial = violation.relu().mul_(to_dtype(mask, violation.dtype))
        share = bounded_exp((nontrivial - nontrivial.amax(1, keepdim=True)).mul_(temperature)).mul_(nontrivial.sign_())
        if weight is not None:
            share *= weight
        share /= share.sum(1, keepdim=True).clamp_min(torch.finfo(share.dtype).tiny)
    # Trivial entries have no share: their violation, though below zero, adds nothing.
    total: Tensor = torch.linalg.vecdot(share, violation)
    return total
