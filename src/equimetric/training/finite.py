"""Whether gradients and weights are finite: a loss may be where they are not."""

import math

import torch
from torch import Tensor, nn

from equimetric.errors import EquimetricError
from equimetric.training.optimizers import Optimizers

__all__ = ["gradient_norms", "require_finite_weights"]


def gradient_norms(optimizer: Optimizers) -> dict[str, Tensor]:
    """Σ|∂L/∂θ| of every parameter group that has a gradient; not finite where one entry is not.

    Absolute values, because the squares of large but finite gradients overflow.
    """
    norms = {}
    for group in optimizer.param_groups:
        gradients = [parameter.grad for parameter in group["params"] if parameter.grad is not None]
        if gradients:
            norms[group["group"]] = torch.stack(torch._foreach_norm(gradients, 1)).sum()
    return norms


def require_finite_weights(learner: nn.Module, step: int) -> None:
    """Raise an error that names the first parameter with an entry that is not finite."""
    named = [(name, parameter.detach()) for name, parameter in learner.named_parameters()]
    if not named:
        return
    norms = torch.stack(torch._foreach_norm([values for _, values in named], 1)).tolist()
    for (name, values), norm in zip(named, norms, strict=True):
        # A sum of large weights may overflow, too.
        if not math.isfinite(norm) and not bool(values.isfinite().all()):
            wrong = values[~values.isfinite()][0].item()
            if step == 0:
                raise EquimetricError(
                    f"the parameter {name!r} holds {wrong} before the first step; check the weights of model.pretrained"
                )
            raise EquimetricError(
                f"the parameter {name!r} became {wrong} at step {step}, after a gradient that was finite: its learning "
                "rate is too high; lower optimizer.lr or, for parameters of the objective, optimizer.objective_lr"
            )
