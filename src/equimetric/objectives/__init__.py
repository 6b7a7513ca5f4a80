"""Objectives: geometry × references × selection × loss, their sums, and the recipes of the literature.

May import everything up to `references`. Nothing is imported before its first use: `recipe`, `recipes`,
`grammar` and `published` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equimetric.objectives.composition import build_objective, compose
    from equimetric.objectives.grammar import parse_method
    from equimetric.objectives.objective import Objective, ObjectiveSum
    from equimetric.objectives.published import PUBLISHED
    from equimetric.objectives.recipe import Context, Recipe
    from equimetric.objectives.recipes import find_recipe

__all__ = [
    "PUBLISHED",
    "Context",
    "Objective",
    "ObjectiveSum",
    "Recipe",
    "build_objective",
    "compose",
    "find_recipe",
    "parse_method",
]

# The functions `objective` and `recipes` are not here: modules of this package have these names.
_MODULES = {
    "PUBLISHED": "published",
    "Context": "recipe",
    "Objective": "objective",
    "ObjectiveSum": "objective",
    "Recipe": "recipe",
    "build_objective": "composition",
    "compose": "composition",
    "find_recipe": "recipes",
    "parse_method": "grammar",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'equimetric.objectives' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"equimetric.objectives.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
