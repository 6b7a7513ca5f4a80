"""Freeze plans: the first training step of each part of a network."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import nn

from equimetric.errors import EquimetricError, did_you_mean

__all__ = ["FreezePlan"]


@dataclass(frozen=True)
class FreezePlan:
    """First training step by parameter-name prefix; parameters without a matching prefix are trained from the start.

    `FreezePlan({"backbone": 500})` trains the head alone for 500 steps, `{"backbone": inf, "backbone.blocks.15": 0}`
    only ever the head and one block. The longest matching prefix decides. "blocks.1" is not a prefix of "blocks.10".
    Batch normalisation in a frozen part keeps its statistics (`Backbone.train`).
    """

    first_steps: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for prefix, step in self.first_steps.items():
            if not prefix:
                raise EquimetricError("a freeze plan needs prefixes of parameter names, not an empty text")
            if not (step >= 0 and (step == math.inf or step == int(step))):
                raise EquimetricError(f"{prefix!r} must be trained from a step 0, 1, 2, … on, or inf for never: {step}")

    @classmethod
    def from_config(cls, freeze: "FreezePlan | Mapping[str, float] | Iterable[str]") -> "FreezePlan":
        """From a plan, a mapping of prefixes to first steps, or a list of prefixes that are never trained."""
        if isinstance(freeze, FreezePlan):
            return freeze
        if isinstance(freeze, str):
            raise EquimetricError(f"freeze takes a list of names or a mapping to steps: write [{freeze!r}]")
        return cls(dict(freeze) if isinstance(freeze, Mapping) else dict.fromkeys(freeze, math.inf))

    def stage(self, step: int) -> int:
        """Number of changes the plan has made by this step."""
        return sum(first <= step for first in {*self.first_steps.values()} - {0, math.inf})

    def first_step(self, name: str) -> float:
        """The first step that trains the parameter of this name."""
        matching = [prefix for prefix in self.first_steps if _has_prefix(name, prefix)]
        return self.first_steps[max(matching, key=len)] if matching else 0

    def apply(self, module: nn.Module, step: int) -> None:
        """Set `requires_grad` of every parameter for this step."""
        names = [name for name, _ in module.named_parameters()]
        for prefix in self.first_steps:
            if not any(_has_prefix(name, prefix) for name in names):
                # Suggest the parts at the two upper levels, as a person would write them.
                parts = {".".join(name.split(".")[:depth]) for name in names for depth in (1, 2)}
                raise EquimetricError(
                    f"no parameter's name begins with {prefix!r}, so it cannot be frozen; {did_you_mean(prefix, parts)}"
                )
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(self.first_step(name) <= step)


def _has_prefix(name: str, prefix: str) -> bool:
    return re.match(re.escape(prefix) + (r"(?!\d)" if prefix[-1].isdigit() else ""), name) is not None
