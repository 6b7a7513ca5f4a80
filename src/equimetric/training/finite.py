"""Checks that gradients and weights are finite: a loss may be finite where they are not."""

import math
from collections.abc import Collection

import torch
from torch import Tensor, nn

from equimetric.errors import EquimetricError
from equimetric.training.optimizers import Optimizers

__all__ = ["gradient_norms", "require_finite_weights"]


def gradient_norms(optimizer: Optimizers) -> dict[str, list[Tensor]]:
    """‖∂L/∂θ‖ of every parameter with a gradient, by parameter group; not finite where one entry is not.

    Nor is it where squares overflow, as those of an optimiser then do, too.
    """
    norms = {}
    for group in optimizer.param_groups:
        gradients = [parameter.grad for parameter in group["params"] if parameter.grad is not None]
        if gradients:
            norms[group["group"]] = list(torch._foreach_norm(gradients))
    return norms


def require_finite_weights(learner: nn.Module, step: int, frozen: Collection[str] = ()) -> None:
    """Raise an error that names the first parameter with an entry that is not finite, apart from frozen ones."""
    parameters = [(name, parameter.detach()) for name, parameter in learner.named_parameters() if name not in frozen]
    if not parameters:
        return
    norms = torch.stack(torch._foreach_norm([values for _, values in parameters])).tolist()
    for (name, values), norm in zip(parameters, norms, strict=True):
        # The squares of large weights overflow, too.
        if not math.isfinite(norm) and not bool(values.isfinite().all()):
            value = values[~values.isfinite()][0].item()
            if step == 0:
                raise EquimetricError(
                    f"the parameter {name!r} holds {value} before the first step; check the weights of model.pretrained"
                )
            raise EquimetricError(
                f"the parameter {name!r} became {value} at step {step}, after a gradient that was finite: its learning "
                "rate is too high; lower optimizer.lr or, for parameters of the objective, optimizer.objective_lr"
            )
