"""Constructors of objectives and their parts: methods, selections, references, geometries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any, Literal

from torch import Tensor, nn

from equimetric.components import LOSSES, REFERENCES, SELECTIONS, Component
from equimetric.constructors.kind import (
    Kind,
    Signature,
    documentation,
    keyword,
    options_of,
    required_first,
    typed_parameters,
)
from equimetric.geometry import GEOMETRIES, Geometry, HyperbolicGeometry, LpGeometry
from equimetric.objectives import Objective, Recipe
from equimetric.objectives.composition import objective
from equimetric.objectives.part_names import GeometryName, ReferencesName, SelectionName
from equimetric.objectives.recipes import recipes
from equimetric.objectives.unknown_method import method_names_elsewhere
from equimetric.option_values import RowReduction
from equimetric.pairs import Pairs, Selected
from equimetric.references.base import References

__all__ = ["GEOMETRY_FUNCTIONS", "LOSS_FUNCTIONS", "REFERENCE_FUNCTIONS", "SELECTION_FUNCTIONS"]

PART_PARAMETERS = {
    "geometry": keyword("geometry", GeometryName | Geometry | None),
    "references": keyword("references", ReferencesName | References | None),
    "selection": keyword("selection", SelectionName | Callable[[Pairs], Selected] | None),
    "normalize": keyword("normalize", bool | None),
    "gather": keyword("gather", bool, default=False),
    "require_both": keyword("require_both", bool, default=False),
    "class_weight": keyword("class_weight", Tensor | Sequence[float] | None),
    "reduction": keyword("reduction", RowReduction | Literal["query"] | None),
}
"""Parameters of every objective besides the options of its parts. A module is a selection by its call."""


def objective_signatures(name: str) -> list[Signature]:
    """The options of the method with its own references; or with other references, which have their own options."""
    recipe = recipes()[name]
    loss, selection, references = recipe.parts()
    parameters = merge_recipe_options(recipe, [loss, selection, references])
    named = [REFERENCES[kind] for kind in loss.reference_kinds if kind != references.name and REFERENCES[kind].options]
    others = [with_references(recipe, kind.name, [kind]) for kind in named]
    if not any(
        parameter.default is Parameter.empty and parameter.name in references.options
        for parameter in parameters.values()
    ):
        return [Signature(merge_part_parameters(parameters), Objective), *others]
    parts = {part: parameter for part, parameter in PART_PARAMETERS.items() if part != "references"}
    return [
        Signature(merge_part_parameters(parameters, parts), Objective),
        *others,
        with_references(recipe, None, []),
    ]


def with_references(recipe: Recipe, name: str | None, kind: list[Component]) -> Signature:
    """With references of a named kind and its options, or with any that are made."""
    options = merge_recipe_options(recipe, [*recipe.parts()[:2], *kind])
    annotation = ReferencesName | References if name is None else Literal[name]
    options["references"] = keyword("references", annotation, Parameter.empty)
    return Signature(merge_part_parameters(options), Objective)


def merge_recipe_options(recipe: Recipe, parts: Sequence[Component]) -> dict[str, Parameter]:
    """The options of some parts by name, the first owner's, with the recipe's defaults."""
    merged: dict[str, Parameter] = {}
    for part in parts:
        for parameter in options_of(part.definition):
            merged.setdefault(parameter.name, parameter)
    for option, selection in parts[0].implies.items():
        implied = {parameter.name: parameter for parameter in options_of(SELECTIONS[selection].definition)}[option]
        merged.setdefault(option, implied.replace(annotation=implied.annotation | None, default=None))
    defaults = {**recipe.options, **dict.fromkeys(recipe.context, Parameter.empty)}
    for option in merged.keys() & defaults.keys():
        merged[option] = merged[option].replace(default=defaults[option])
    return merged


def merge_part_parameters(
    options: dict[str, Parameter], parts: dict[str, Parameter] | None = None
) -> tuple[Parameter, ...]:
    """Options, the required ones first, and then what every objective takes."""
    merged = {**(PART_PARAMETERS if parts is None else parts), **options}
    if "reduction" in options:
        # Also of a loss with reductions of its own.
        own = options["reduction"]
        merged["reduction"] = own.replace(annotation=own.annotation | Literal["query"])
    ordered = [merged[name] for name in dict.fromkeys([*options, *merged])]
    return tuple(required_first(ordered))


def describe_method(name: str) -> str:
    """The docstring of the method's loss, after the note of its recipe."""
    recipe = recipes()[name]
    note = f"{recipe.title}: {recipe.note}.\n\n" if recipe.note else ""
    return note + documentation(LOSSES[recipe.loss].definition)


def build_method(name: str, **options: Any) -> Objective:
    """The objective of one method."""
    method_objective = objective(name, **options)
    assert isinstance(method_objective, Objective)
    return method_objective


# Geometries that are a family of their own have options.

GEOMETRY_FAMILIES: dict[str, type[Geometry]] = {"lp": LpGeometry, "hyperbolic": HyperbolicGeometry}


def geometry_signatures(name: str) -> list[Signature]:
    """The options of a geometry family; the built-in geometries have none."""
    family = GEOMETRY_FAMILIES.get(name)
    return [Signature(() if family is None else tuple(typed_parameters(family)), Geometry)]


def build_geometry(name: str, *arguments: Any, **options: Any) -> Geometry:
    """Build a geometry of a family, or look up the only one of its name."""
    return GEOMETRY_FAMILIES[name](*arguments, **options) if name in GEOMETRY_FAMILIES else GEOMETRIES[name]


def component_signatures(registry: Any, returns: type) -> Callable[[str], list[Signature]]:
    """The options of a selection, or of references."""
    return lambda name: [Signature(tuple(required_first(options_of(registry[name].definition))), returns)]


LOSS_FUNCTIONS = Kind(
    "losses",
    recipes,
    objective_signatures,
    build_method,
    describe_method,
    room="equimetric.losses",
    known_as=lambda: method_names_elsewhere(recipes()),
)
SELECTION_FUNCTIONS = Kind(
    "selections",
    lambda: SELECTIONS,
    component_signatures(SELECTIONS, nn.Module),
    lambda name, **options: SELECTIONS[name].build(options),
    lambda name: documentation(SELECTIONS[name].definition),
    known_as=lambda: SELECTIONS.known_as,
)
REFERENCE_FUNCTIONS = Kind(
    "references",
    lambda: REFERENCES,
    component_signatures(REFERENCES, References),
    lambda name, **options: REFERENCES[name].build(options),
    lambda name: documentation(REFERENCES[name].definition),
    room="equimetric.references",
    known_as=lambda: REFERENCES.known_as,
)
GEOMETRY_FUNCTIONS = Kind(
    "geometries",
    lambda: [*GEOMETRIES, *GEOMETRY_FAMILIES],
    geometry_signatures,
    build_geometry,
    lambda name: documentation(GEOMETRY_FAMILIES[name]) if name in GEOMETRY_FAMILIES else GEOMETRIES[name].summary,
)
