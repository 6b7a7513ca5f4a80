"""Parts of a network that do not learn, or not from the start."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import nn

from equimetric.errors import EquimetricError, did_you_mean

__all__ = ["FreezePlan"]


@dataclass(frozen=True)
class FreezePlan:
    """From which step on parameters learn, by the beginnings of their names; those not named learn from the start.

    `FreezePlan({"backbone": 500})` trains the head alone for 500 steps, `{"backbone": inf, "backbone.blocks.15": 0}`
    the head and one block for good. The longest beginning decides. "blocks.1" is not a beginning of "blocks.10".
    Batch normalisation in a part that waits keeps its statistics (`Backbone.train`).
    """

    first_steps: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for prefix, step in self.first_steps.items():
            if not prefix:
                raise EquimetricError("a freeze plan needs the beginning of a parameter's name, not an empty text")
            if not (step >= 0 and (step == math.inf or step == int(step))):
                raise EquimetricError(f"{prefix!r} must learn from a step 0, 1, 2, … on, or from inf for never: {step}")

    @classmethod
    def of(cls, freeze: "FreezePlan | Mapping[str, float] | Iterable[str]") -> "FreezePlan":
        """A plan as it is, from a mapping of beginnings to first steps, or from beginnings that never learn."""
        if isinstance(freeze, FreezePlan):
            return freeze
        if isinstance(freeze, str):
            raise EquimetricError(f"freeze takes a list of names or a mapping to steps: write [{freeze!r}]")
        return cls(dict(freeze) if isinstance(freeze, Mapping) else dict.fromkeys(freeze, math.inf))

    def stage(self, step: int) -> int:
        """How many changes the plan has behind it at this step."""
        return sum(first <= step for first in {*self.first_steps.values()} - {0, math.inf})

    def first_step(self, name: str) -> float:
        """The step from which on the parameter of this name learns."""
        matching = [prefix for prefix in self.first_steps if _begins(name, prefix)]
        return self.first_steps[max(matching, key=len)] if matching else 0

    def apply(self, module: nn.Module, step: int) -> None:
        """Let exactly those parameters require gradients that learn at this step."""
        names = [name for name, _ in module.named_parameters()]
        for prefix in self.first_steps:
            if not any(_begins(name, prefix) for name in names):
                # all parts at the two upper levels, as a person would write them
                parts = {".".join(name.split(".")[:depth]) for name in names for depth in (1, 2)}
                raise EquimetricError(
                    f"no parameter's name begins with {prefix!r}, so it cannot be frozen; {did_you_mean(prefix, parts)}"
                )
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(self.first_step(name) <= step)


def _begins(name: str, prefix: str) -> bool:
    return re.match(re.escape(prefix) + (r"(?!\d)" if prefix[-1].isdigit() else ""), name) is not None
