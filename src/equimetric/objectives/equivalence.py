"""Whether two names with options mean one method."""

import inspect
from collections.abc import Mapping
from typing import Any

from equimetric.components import REFERENCES, SELECTIONS
from equimetric.objectives.grammar import flatten_options, parse_method, route_to_terms
from equimetric.objectives.recipe import PARTS, Recipe
from equimetric.objectives.recipes import ROWS

__all__ = ["same_method"]

FROM_DATA = "from the data"
"""Stands for any value of an option that comes from the data, such as the number of classes."""

COUNTS = {option for recipe in ROWS for option in recipe.context}
"""Options that some recipes take from the data and others omit."""


def same_method(method: str, options: Mapping[str, Any], other: str, fixed: Mapping[str, Any]) -> bool:
    """Whether `method` with `options` is the method `other` with the options `fixed`.

    'triplet' with selection='semihard' is 'triplet_semihard'. Parts and options must be equal, also those left at their
    defaults; only options that have a search range in `other` may differ, unless `fixed` sets them.
    """
    terms, other_terms = sort_terms(method, options), sort_terms(other, fixed)
    if [weight for weight, _, _ in terms] != [weight for weight, _, _ in other_terms]:
        return False
    for (_, recipe, term_options), (_, other_recipe, other_options) in zip(terms, other_terms, strict=True):
        tuned = set(other_recipe.search) - {option.rpartition(".")[2] for option in other_options}
        if resolve(recipe, term_options, tuned) != resolve(other_recipe, other_options, tuned):
            return False
    return True


def sort_terms(method: str, options: Mapping[str, Any]) -> list[tuple[float, Recipe, dict[str, Any]]]:
    """Weight, recipe and options of each term, in the order of their losses: 'a+b' is 'b+a'."""
    terms = parse_method(method)
    routed = route_to_terms(method, terms, flatten_options(options))
    weighted = [(weight, recipe, term_options) for (weight, recipe), term_options in zip(terms, routed, strict=True)]
    return sorted(weighted, key=lambda term: (term[1].loss, term[0]))


def resolve(recipe: Recipe, options: Mapping[str, Any], tuned: set[str]) -> dict[str, Any]:
    """The parts of a term, and the value of every option that is not tuned, defaults filled in."""
    loss = recipe.parts()[0]
    renamed = {loss.aliases.get(option, option): value for option, value in options.items()}
    values = {**recipe.own_options(options), **renamed}
    parts = {part: values.pop(part, None) or getattr(recipe, part) for part in PARTS}
    implied = [selection for option, selection in loss.implies.items() if values.get(option) is not None]
    parts["selection"] = parts["selection"] or next(iter(implied), "all")
    parts["geometry"] = parts["geometry"] or loss.geometries[0]
    parts["references"] = parts["references"] or loss.reference_kinds[0]

    resolved = {"loss": loss.name, **parts}
    owners = {"loss": loss, "selection": SELECTIONS.get(parts["selection"])}
    owners["references"] = REFERENCES.get(parts["references"])
    known = set()
    for role, component in owners.items():
        for option, default in ({} if component is None else component.options).items():
            known |= {option, f"{role}.{option}"}
            value = values.get(f"{role}.{option}", values.get(option, default))
            if option in recipe.context or default is inspect.Parameter.empty or (option in COUNTS and value):
                value = FROM_DATA
            if option not in tuned:
                resolved[f"{role}.{option}"] = value
    # Options of the objective itself, such as `normalize`, and of a user's own parts.
    return {**resolved, **{option: value for option, value in values.items() if option not in known}}
