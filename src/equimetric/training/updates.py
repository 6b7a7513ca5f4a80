"""The update rules of torch on a CPU: the same arithmetic, operation for operation, in a fraction of the calls.

The overhead of a `torch.optim` step (hooks, profiling, the choice among implementations) is a tenth of a training step
of a head. Parameters without optimiser state are left to torch, which creates it, and so is everything on another
device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

__all__ = ["apply_updates"]


def apply_updates(optimizer: Optimizer) -> None:
    """Update all parameters that have a gradient."""
    rule, state = RULES.get(type(optimizer)), optimizer.state
    updates = [
        (parameter, parameter.grad, group)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    if rule is None or not all(parameter in state and is_plain(gradient) for parameter, gradient, _ in updates):
        optimizer.step()
        return
    with torch.no_grad():
        for parameter, gradient, group in updates:
            rule(parameter, gradient, state[parameter], group)


def is_plain(gradient: Tensor) -> bool:
    """Whether a gradient is a dense one on the CPU."""
    return gradient.is_cpu and gradient.layout is torch.strided


def update_adamw(parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """As Adam, after θ ← θ − lr · decay · θ."""
    if group["weight_decay"]:
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
    adam_step(parameter, gradient, state, group)


def update_adam(parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Adam with g ← g + decay · θ."""
    if group["weight_decay"]:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
    adam_step(parameter, gradient, state, group)


def adam_step(parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Moments m ← β₁m + (1 − β₁)g and v ← β₂v + (1 − β₂)g², then θ ← θ − lr · m̂ / (√v̂ + eps)."""
    (beta1, beta2), first, second = group["betas"], state["exp_avg"], state["exp_avg_sq"]
    state["step"] += 1
    step = state["step"].item()
    first.lerp_(gradient, 1 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    denominator = second.sqrt().div_((1 - beta2**step) ** 0.5).add_(group["eps"])
    parameter.addcdiv_(first, denominator, value=-(group["lr"] / (1 - beta1**step)))


def update_rmsprop(parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Square v ← αv + (1 − α)g², buffer b ← momentum · b + g / (√v + eps), θ ← θ − lr · b."""
    alpha, square = group["alpha"], state["square_avg"]
    state["step"] += 1
    if group["weight_decay"]:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
    square.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
    denominator = square.sqrt().add_(group["eps"])
    if group["momentum"] > 0:
        buffer = state["momentum_buffer"].mul_(group["momentum"]).addcdiv_(gradient, denominator)
        parameter.add_(buffer, alpha=-group["lr"])
    else:
        parameter.addcdiv_(gradient, denominator, value=-group["lr"])


def update_sgd(parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Buffer b ← momentum · b + g, θ ← θ − lr · b."""
    if group["weight_decay"]:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
    if group["momentum"]:
        gradient = state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
    parameter.add_(gradient, alpha=-group["lr"])


Rule = Callable[[Tensor, Tensor, dict[str, Any], dict[str, Any]], None]
RULES: dict[type[Optimizer], Rule] = {AdamW: update_adamw, Adam: update_adam, RMSprop: update_rmsprop, SGD: update_sgd}
"""For the options that `training.optimizers` sets; all others have torch's defaults."""
