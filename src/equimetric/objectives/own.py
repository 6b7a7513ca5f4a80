"""Losses of one's own as methods: 'my_losses:gap' of a plug-in, and what stands for one that is not loaded."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import deepcopy
from inspect import Parameter
from typing import Any, NoReturn

from torch import Tensor, nn

from equimetric.components import LOSSES, Component
from equimetric.errors import EquimetricError, quote
from equimetric.objectives.composition import wrap_function
from equimetric.objectives.objective import BaseObjective, Objective, ObjectiveSum
from equimetric.objectives.recipe import Recipe
from equimetric.plugins import find_plugin_object

__all__ = ["MissingObjective", "own_recipe"]


def own_recipe(name: str) -> Recipe:
    """The method 'module:name': a loss of a loaded plug-in, registered by a decorator or not."""
    target = find_plugin_object(name)
    if isinstance(target, Objective | ObjectiveSum):
        raise EquimetricError(
            f"{quote(name)} is an objective that is made already; give the function or class of its loss, and "
            "its parts and values as options"
        )
    for component in LOSSES.values():
        if component.definition is target:
            return Recipe(component.name, component.title, component.name)
    if not callable(target):
        raise EquimetricError(
            f"{quote(name)} is {type(target).__name__}, not a loss; give a function of pairs or a module"
        )
    component = wrap_loss(name, target)
    LOSSES.add(name, component, module=name.partition(":")[0])
    return Recipe(name, component.title, name)


def wrap_loss(name: str, target: Any) -> OwnLoss:
    """The record of a function, class or module."""
    values = {**vars(wrap_function("loss", target)), "name": name, "title": name.partition(":")[2]}
    return OwnLoss(**{**values, "definition": target})


class OwnLoss(Component):
    """A loss without a decorator: all parameters of a class are options; of a module every run has a copy."""

    @property
    def options(self) -> dict[str, Any]:
        """Option name → default."""
        if isinstance(self.definition, nn.Module):
            return {}
        if not isinstance(self.definition, type):
            return super().options
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        parameters = inspect.signature(self.definition).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters if parameter.kind in named}

    def build(self, options: Mapping[str, Any]) -> nn.Module:
        """The loss with these options."""
        if isinstance(self.definition, nn.Module):
            return deepcopy(self.definition)
        missing = [key for key, default in self.options.items() if default is Parameter.empty and key not in options]
        if missing:
            raise EquimetricError(
                f"{quote(self.name)} cannot be made without options: it needs {', '.join(missing)}; give them"
            )
        return super().build(options)


class MissingObjective(BaseObjective):
    """Stands for the objective of a stored run whose parts are not loaded: keeps its tensors, computes nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    def terms(self, *_: Any, **__: Any) -> NoReturn:
        """Say what is missing."""
        raise EquimetricError(f"the objective of this run cannot be computed here: {self.reason}")

    def parts(self) -> NoReturn:
        """Say what is missing."""
        self.terms()

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *_: Any) -> None:
        for name in [name for name in state_dict if name.startswith(prefix)]:
            self.register_buffer(name.removeprefix(prefix).replace(".", "/"), state_dict[name])
