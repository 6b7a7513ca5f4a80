"""Values whose gradient is computed in the forward pass, or is scaled in backward."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from equimetric.ops.products import is_tracing

__all__ = ["keep_signs", "scale_gradient", "scale_saved", "sum_scalars", "with_gradient"]


def sum_scalars(parts: Sequence[Tensor]) -> Tensor:
    """Sum scalars; a single one is returned unchanged."""
    return parts[0] if len(parts) == 1 else torch.stack(list(parts)).sum(0)


def scale_gradient(values: Tensor, factor: Tensor | float) -> Tensor:
    """The values; backward multiplies their gradient by `factor`, and −1 reverses it."""
    fixed = values.detach()
    return fixed + factor * (values - fixed)


class KeepSigns(torch.autograd.Function):
    """Similarities whose gradient never pushes a positive away nor pulls a negative closer."""

    @staticmethod
    def forward(ctx: Any, similarity: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The similarities."""
        ctx.save_for_backward(positive, negative)
        return similarity.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        """The gradient below 0 for positives, above 0 for negatives, and 0 elsewhere."""
        positive, negative = ctx.saved_tensors
        gradient = grad_outputs[0]
        return positive * gradient.clamp_max(0) + negative * gradient.clamp_min(0), None, None


def keep_signs(similarity: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """The similarities; backward drops what would push a positive away or pull a negative closer."""
    result: Tensor = KeepSigns.apply(similarity, positive, negative)  # type: ignore[no-untyped-call]
    return result


def scale_saved(grad_output: Tensor, gradient: Tensor) -> Tensor:
    """A saved gradient times the scalar `grad_output`, which is 1 after `loss.backward()` and then saves a pass.

    On an accelerator reading the scalar takes longer than multiplying by it.
    """
    if grad_output.is_cpu and not grad_output.requires_grad and not is_tracing() and grad_output == 1:
        return gradient
    return grad_output * gradient


class KnownGradient(torch.autograd.Function):
    """A scalar whose gradient with respect to one tensor is computed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, wrt: Tensor, value: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG004
        """The value."""
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        """Scale the saved gradient by `grad_output`."""
        return scale_saved(grad_outputs[0], ctx.saved_tensors[0]), None, None


def with_gradient(value: Tensor, wrt: Tensor, gradient: Tensor) -> Tensor:
    """A scalar function of `wrt` with the given gradient, which has the shape of `wrt`."""
    result: Tensor = KnownGradient.apply(wrt, value, gradient)  # type: ignore[no-untyped-call]
    return result
