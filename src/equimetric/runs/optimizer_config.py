"""The table [optimizer] of a configuration: update rules, learning rates, schedules."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from equimetric.configuration import Strict

__all__ = ["GroupConfig", "OptimizerConfig"]


class GroupConfig(Strict):
    """Update rule of one named group of a learner's parameters, where it differs from the network's."""

    name: Literal["adamw", "adam", "rmsprop", "sgd"] | None = Field(None, description="update rule")
    lr: float | None = Field(None, gt=0, description="learning rate")
    weight_decay: float | None = Field(None, ge=0, description="weight decay")
    momentum: float | None = Field(None, ge=0, lt=1, description="momentum of rmsprop and sgd")
    eps: float | None = Field(None, gt=0, description="eps of adam, adamw and rmsprop")


class OptimizerConfig(Strict):
    """Update rules, learning rates, schedules. The network is trunk and head; the objective has proxies and so on."""

    name: Literal["adamw", "adam", "rmsprop", "sgd"] = Field("adamw", description="update rule")
    lr: float = Field(3e-3, gt=0, description="learning rate of the network")
    weight_decay: float = Field(1e-4, ge=0, description="weight decay of the network")
    head_lr: float | None = Field(None, gt=0, description="learning rate of the head; default: that of the network")
    head_weight_decay: float | None = Field(
        None, ge=0, description="weight decay of the head; default: that of the network"
    )
    objective_lr: float = Field(3e-2, gt=0, description="learning rate of the objective's own parameters")
    objective_weight_decay: float = Field(0.0, ge=0, description="weight decay of the objective's own parameters")
    objective_name: Literal["adamw", "adam", "rmsprop", "sgd"] | None = Field(
        None, description="update rule of the objective's own parameters; default: that of the network"
    )
    objective_momentum: float | None = Field(
        None, ge=0, lt=1, description="momentum of the objective's own parameters; default: that of the network"
    )
    objective_eps: float | None = Field(
        None, gt=0, description="eps of the objective's own parameters; default: that of the network"
    )
    momentum: float | None = Field(None, ge=0, lt=1, description="momentum of rmsprop and sgd; default 0.9")
    eps: float | None = Field(None, gt=0, description="eps of adam, adamw and rmsprop; default 1e-8")
    groups: dict[str, GroupConfig] = Field(
        default_factory=dict,
        description="further parameter groups of the learner by name, as in [optimizer.groups.adversary]",
    )
    warmup_steps: int = Field(0, ge=0, description="steps over which learning rates rise linearly from 0")
    schedule: Literal["cosine", "constant", "linear", "step", "plateau"] = Field(
        "cosine",
        description="learning rates after the warm-up: fall to 0 over the budget by a half 'cosine' or by a 'linear' "
        "ramp, stay 'constant', are multiplied by `decay` at each 'step' of `milestones`, or whenever validation has "
        "reached a 'plateau'",
    )
    milestones: list[int] = Field(default=[], description="of schedule 'step': after how many steps rates are lowered")
    decay: float = Field(0.1, gt=0, lt=1, description="factor of the schedules 'step' and 'plateau'")
    plateau_steps: int | None = Field(
        None, ge=1, description="of schedule 'plateau': steps without a better validation before rates are lowered"
    )
    clip_norm: float | None = Field(None, gt=0, description="largest norm of the gradient of all parameters together")
    clip_value: float | None = Field(None, gt=0, description="largest absolute value of each entry of the gradient")

    @field_validator("groups")
    @classmethod
    def _standard_groups_have_keys(cls, groups: dict[str, GroupConfig]) -> dict[str, GroupConfig]:
        for name, keys in {"trunk": "lr, weight_decay", "head": "head_lr", "objective": "objective_lr"}.items():
            if name in groups:
                raise ValueError(f"the group {name!r} has keys of its own in [optimizer] ({keys}, …); use those")
        return groups

    @model_validator(mode="after")
    def _keys_belong_together(self) -> OptimizerConfig:
        rules = [("", self.name, self.momentum, self.eps)]
        rules += [("objective_", self.objective_name or self.name, self.objective_momentum, self.objective_eps)]
        rules += [
            (f"groups.{key}.", group.name or self.name, group.momentum, group.eps) for key, group in self.groups.items()
        ]
        for prefix, name, momentum, eps in rules:
            # A study sets 0 where its protocol has a momentum for another rule.
            if momentum and name in ("adam", "adamw"):
                raise ValueError(
                    f"{name!r} has no momentum to set; leave {prefix}momentum out or choose 'rmsprop' or 'sgd'"
                )
            if eps is not None and name == "sgd":
                raise ValueError(f"'sgd' has no eps; leave {prefix}eps out")
        if (self.schedule == "step") != bool(self.milestones):
            raise ValueError("milestones and schedule = 'step' belong together; give both or neither")
        if sorted(set(self.milestones)) != self.milestones or min(self.milestones, default=1) < 1:
            raise ValueError(f"milestones must be ascending numbers of steps from 1 on, not {self.milestones}")
        if (self.schedule == "plateau") != (self.plateau_steps is not None):
            raise ValueError("plateau_steps and schedule = 'plateau' belong together; give both or neither")
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError("gradients are clipped by norm or by value; give clip_norm or clip_value, not both")
        return self
