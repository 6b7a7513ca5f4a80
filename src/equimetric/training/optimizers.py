"""Optimisers with parameter groups for trunk, head and objective, learning-rate schedules, and clipping."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from equimetric.configuration import OptimizerConfig
from equimetric.errors import EquimetricError
from equimetric.learners import Learner

__all__ = ["build_optimizer", "clip_gradients", "learning_rate_factor", "set_learning_rates"]

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
    "linear": lambda progress: 1 - progress,
}
"""Share of the budget spent, 0 … 1 → factor on the learning rate."""


def build_optimizer(learner: Learner, config: OptimizerConfig) -> Optimizer:
    """Up to three groups with rates and weight decays of their own: the trunk, the head and the objective."""
    objective, head = list(learner.objective_parameters()), list(learner.head_parameters())
    elsewhere = {id(parameter) for parameter in (*objective, *head)}
    trunk = [parameter for parameter in learner.parameters() if id(parameter) not in elsewhere]
    head_lr = config.lr if config.head_lr is None else config.head_lr
    head_decay = config.weight_decay if config.head_weight_decay is None else config.head_weight_decay
    groups: list[dict[str, Any]] = [
        {"params": parameters, "lr": lr, "initial_lr": lr, "weight_decay": weight_decay}
        for parameters, lr, weight_decay in (
            (trunk, config.lr, config.weight_decay),
            (head, head_lr, head_decay),
            (objective, config.objective_lr, config.objective_weight_decay),
        )
        if parameters
    ]
    if not groups:
        raise EquimetricError(
            "there is nothing to learn: the trunk is frozen, and head and objective have no parameters"
        )
    options: dict[str, float] = {}
    if config.name in ("rmsprop", "sgd"):
        options["momentum"] = 0.9 if config.momentum is None else config.momentum
    if config.eps is not None:
        options["eps"] = config.eps
    return OPTIMIZERS[config.name](groups, lr=config.lr, **options)


def learning_rate_factor(config: OptimizerConfig, step: int, steps: int, lowered: int = 0) -> float:
    """What learning rates are multiplied by at a step of so many; `lowered` times a plateau was reached before."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "step":
        return config.decay ** sum(milestone <= step for milestone in config.milestones)
    if config.schedule == "plateau":
        return config.decay**lowered
    return SCHEDULES[config.schedule]((step - config.warmup_steps) / (steps - config.warmup_steps))


def set_learning_rates(optimizer: Optimizer, factor: float) -> None:
    """Set every group's rate to so much of its full one."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor


def clip_gradients(optimizer: Optimizer, config: OptimizerConfig) -> None:
    """Shorten the gradient to `clip_norm`, g · min(1, clip_norm / ‖g‖), or cut off its entries at ± `clip_value`."""
    parameters: list[Tensor] = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if config.clip_norm is not None:
        nn.utils.clip_grad_norm_(parameters, config.clip_norm)
    if config.clip_value is not None:
        nn.utils.clip_grad_value_(parameters, config.clip_value)
