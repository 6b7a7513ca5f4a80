"""Optimisers with a group of their own for the objective's parameters, and learning-rate schedules."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from equimetric.configuration import OptimizerConfig
from equimetric.learners import Learner

__all__ = ["build_optimizer", "set_learning_rates"]

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, momentum=0.9),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1.0, momentum=0.9),
}

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
}
"""Share of the budget spent, 0 … 1 → factor on the learning rate."""


def build_optimizer(learner: Learner, config: OptimizerConfig) -> Optimizer:
    """Two groups: the network, and, with its own rate and no weight decay, the objective."""
    own = list(learner.objective_parameters())
    owned = {id(parameter) for parameter in own}
    network = [parameter for parameter in learner.parameters() if id(parameter) not in owned]
    groups: list[dict[str, Any]] = [
        {"params": network, "lr": config.lr, "initial_lr": config.lr, "weight_decay": config.weight_decay}
    ]
    if own:
        groups.append(
            {"params": own, "lr": config.objective_lr, "initial_lr": config.objective_lr, "weight_decay": 0.0}
        )
    return OPTIMIZERS[config.name](groups)


def set_learning_rates(optimizer: Optimizer, schedule: str, progress: float) -> None:
    """Set every group's rate for this share of the budget; a function of the step alone, so nothing to resume."""
    factor = SCHEDULES[schedule](progress)
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor
