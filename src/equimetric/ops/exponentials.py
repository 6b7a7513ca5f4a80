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
    def forward(ctx: Any, exponent: Tensor) -> Tensor:
        """Any shape, x ≤ 0."""
        result = clamp_exponent(exponent).exp_()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        """`grad_output` times e^x."""
        (result,) = ctx.saved_tensors
        gradient: Tensor = grad_outputs[0] * result
        return gradient


def mask_to_lowest(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """(…, R) values, far below all others outside the mask, and the (…, 1) largest, −1e30 of an empty row."""
    if values.is_cpu:
        # Adding 0 inside the mask and −2e30 outside is several times faster than torch.where.
        lowered = torch.add(values, to_dtype(mask, values.dtype).sub_(1), alpha=-2 * FAR_BELOW)
        largest = lowered.amax(-1, keepdim=True)
        if largest.isfinite().all():
            return lowered, largest.clamp_min_(FAR_BELOW)
    masked = torch.where(mask, values, -torch.inf)
    return masked, masked.amax(-1, keepdim=True).clamp_min_(FAR_BELOW)


class LogSumExp(torch.autograd.Function):
    """l_i = log Σ_j e^{v_ij} over a mask, and the probabilities p = e^{v − l}, which are its gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(…, R), (…, R) → (…,) and (…, R); of an empty row about −1e30 and 0."""
        ctx.set_materialize_grads(False)
        exponent, largest = mask_to_lowest(values, mask)
        lowest = min_exponent(values.dtype)
        probs = exponent.sub_(largest).clamp_(lowest, 0).exp_()
        # Clamped entries, which include all those outside the mask, get probability 0.
        torch.threshold_(probs, 2 * exp(lowest), 0)
        total = probs.sum(-1, keepdim=True).clamp_min_(torch.finfo(values.dtype).tiny)
        probs.div_(total)
        ctx.save_for_backward(probs)
        return (total.log_() + largest)[..., 0], probs

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, None]:
        """P · ∂l, plus p (g − Σ p g) for a gradient g of p, where the gradient itself is differentiated."""
        (probs,) = ctx.saved_tensors
        grad_result, grad_probs = grad_outputs
        gradient = None if grad_result is None else probs * grad_result[..., None]
        if grad_probs is not None:
            probs_gradient = probs * (grad_probs - (probs * grad_probs).sum(-1, keepdim=True))
            gradient = probs_gradient if gradient is None else gradient + probs_gradient
        return gradient, None


def min_exponent(dtype: torch.dtype) -> float:
    """An exponent whose exponential is a normal number, though one that adds nothing to 1."""
    return -80.0 if dtype == torch.float32 else -700.0


def clamp_exponent(exponent: Tensor) -> Tensor:
    """Exponents ≤ 0 whose exponentials are normal numbers."""
    return exponent.clamp(min_exponent(exponent.dtype), 0.0)


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
    sums = torch.where(mask, clamp_exponent(values - largest).exp(), 0.0).sum(-1)
    return sums.clamp_min(torch.finfo(sums.dtype).tiny).log() + largest[..., 0]


def log1p_sum_exp(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """(Q,) log(1 + Σ_j e^{values_ij}) over each row's entries; 0 with gradient 0 for an empty row."""
    # Beyond the threshold the 1 is less than the rounding of float64.
    return softplus(log_sum_exp(values, mask, weight), threshold=40)


def row_violation(violation: Tensor, mask: Tensor, weight: Tensor | None, temperature: float) -> Tensor:
    """(Q,) Σ w v / Σ w over the entries v > 0 of each row, w = e^{T v} held constant; 0 where there are none."""
    with torch.no_grad():
        nontrivial = violation.relu().mul_(to_dtype(mask, violation.dtype))
        weights = bounded_exp((nontrivial - nontrivial.amax(1, keepdim=True)).mul_(temperature)).mul_(
            nontrivial.sign_()
        )
        if weight is not None:
            weights *= weight
        weights /= weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    # Trivial entries have weight 0: their violation, though below zero, adds nothing.
    total: Tensor = torch.linalg.vecdot(weights, violation)
    return total
