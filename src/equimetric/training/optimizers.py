"""Optimisers with parameter groups for trunk, head and objective, learning-rate schedules, and clipping."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from equimetric.configuration import OptimizerConfig
from equimetric.errors import EquimetricError
from equimetric.learners import Learner

__all__ = ["Optimizers", "build_optimizer", "clip_gradients", "learning_rate_factor", "set_learning_rates"]

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


class UpdateRule(NamedTuple):
    """How a group of parameters moves: a name of `OPTIMIZERS`, and its momentum and eps where it has them."""

    name: str
    momentum: float | None
    eps: float | None

    def over(self, groups: list[dict[str, Any]]) -> Optimizer:
        """The optimiser by this rule of groups of parameters with rates and weight decays of their own."""
        options: dict[str, float] = {}
        if self.name in ("rmsprop", "sgd"):
            options["momentum"] = 0.9 if self.momentum is None else self.momentum
        if self.eps is not None:
            options["eps"] = self.eps
        return OPTIMIZERS[self.name](groups, **options)


def network_rule(config: OptimizerConfig) -> UpdateRule:
    """The update rule of trunk and head."""
    return UpdateRule(config.name, config.momentum, config.eps)


def objective_rule(config: OptimizerConfig) -> UpdateRule:
    """The update rule of the objective's own parameters: the network's in all that is not said otherwise.

    Another rule than the network's has momentum and eps of its own or the usual ones, never the network's.
    """
    if config.objective_name not in (None, config.name):
        return UpdateRule(config.objective_name, config.objective_momentum, config.objective_eps)
    momentum = config.momentum if config.objective_momentum is None else config.objective_momentum
    return UpdateRule(config.name, momentum, config.eps if config.objective_eps is None else config.objective_eps)


class Optimizers:
    """The optimisers that make a step together, one for each update rule; to the loop they are one."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all of them."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Move all parameters that have a gradient."""
        for optimizer in self.optimizers:
            optimizer.step()

    def state(self) -> dict[int, dict[str, Any]]:
        """What is kept of each parameter (moments and the like), by its place in the groups."""
        kept: dict[int, dict[str, Any]] = {}
        for first, optimizer in self._numbered():
            kept |= {first + place: values for place, values in optimizer.state_dict()["state"].items()}
        return kept

    def load_state(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Go on from what `state` gave; learning rates are functions of the step and are not part of it."""
        for first, optimizer in self._numbered():
            groups = optimizer.state_dict()["param_groups"]
            places = {place for group in groups for place in group["params"]}
            own = {place: state[first + place] for place in places if first + place in state}
            optimizer.load_state_dict({"state": own, "param_groups": groups})

    def _numbered(self) -> Iterator[tuple[int, Optimizer]]:
        """Each optimiser with the place of its first parameter."""
        first = 0
        for optimizer in self.optimizers:
            yield first, optimizer
            first += sum(len(group["params"]) for group in optimizer.param_groups)


def build_optimizer(learner: Learner, config: OptimizerConfig) -> Optimizers:
    """Up to three groups with rates and weight decays of their own: the trunk, the head and the objective.

    The objective may have an update rule of its own beside the network's.
    """
    objective, head = list(learner.objective_parameters()), list(learner.head_parameters())
    elsewhere = {id(parameter) for parameter in (*objective, *head)}
    trunk = [parameter for parameter in learner.parameters() if id(parameter) not in elsewhere]
    head_lr = config.lr if config.head_lr is None else config.head_lr
    head_decay = config.weight_decay if config.head_weight_decay is None else config.head_weight_decay
    of_network, of_objective = network_rule(config), objective_rule(config)
    groups: dict[UpdateRule, list[dict[str, Any]]] = {}
    for rule, parameters, lr, weight_decay in (
        (of_network, trunk, config.lr, config.weight_decay),
        (of_network, head, head_lr, head_decay),
        (of_objective, objective, config.objective_lr, config.objective_weight_decay),
    ):
        if parameters:
            group = {"params": parameters, "lr": lr, "initial_lr": lr, "weight_decay": weight_decay}
            groups.setdefault(rule, []).append(group)
    if not groups:
        raise EquimetricError(
            "there is nothing to learn: the trunk is frozen, and head and objective have no parameters"
        )
    return Optimizers(*(rule.over(of_rule) for rule, of_rule in groups.items()))


def learning_rate_factor(config: OptimizerConfig, step: int, steps: int, lowered: int = 0) -> float:
    """What learning rates are multiplied by at a step of so many; `lowered` times a plateau was reached before."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "step":
        return config.decay ** sum(milestone <= step for milestone in config.milestones)
    if config.schedule == "plateau":
        return config.decay**lowered
    return SCHEDULES[config.schedule]((step - config.warmup_steps) / (steps - config.warmup_steps))


def set_learning_rates(optimizer: Optimizers, factor: float) -> None:
    """Set every group's rate to so much of its full one."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor


def clip_gradients(optimizer: Optimizers, config: OptimizerConfig) -> None:
    """Shorten the gradient to `clip_norm`, g · min(1, clip_norm / ‖g‖), or cut off its entries at ± `clip_value`."""
    parameters: list[Tensor] = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if config.clip_norm is not None:
        nn.utils.clip_grad_norm_(parameters, config.clip_norm)
    if config.clip_value is not None:
        nn.utils.clip_grad_value_(parameters, config.clip_value)
