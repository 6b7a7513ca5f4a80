"""The grammar of methods and options: "contrastive + 0.5*tcm", and names such as "triplet.selection.margin"."""

import re
from collections.abc import Mapping
from math import isfinite, nan
from typing import Any

from equimetric.dotted import flatten
from equimetric.errors import EquimetricError, did_you_mean, unknown_name
from equimetric.objectives.recipe import ROLES, Recipe
from equimetric.objectives.recipes import find_recipe
from equimetric.other_names import translate_name

__all__ = ["flatten_options", "parse_method", "route_to_terms"]


def parse_method(method: str) -> list[tuple[float, Recipe]]:
    """The weighted terms of a method's name: 'multi_similarity', 'contrastive+tcm', 'contrastive + 0.5*tcm'."""
    terms = []
    # 'ProxyNCA++' is a name elsewhere.
    for term in re.split(r"(?<!\+)\+(?!\+)", method):
        factor, _, name = term.rpartition("*")
        try:
            weight = float(factor) if factor.strip() else 1.0
        except ValueError:
            weight = nan
        if not isfinite(weight):
            raise EquimetricError(f"{factor.strip()!r} in {method!r} is not a number; write e.g. '0.5*tcm'")
        if not name.strip():
            raise EquimetricError(f"{method!r} has a term without a method; write e.g. 'contrastive+0.5*tcm'")
        terms.append((weight, find_recipe(name.strip())))
    return terms


def flatten_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """{'selection': {'margin': 0.1}}, as TOML reads `selection.margin = 0.1`, becomes {'selection.margin': 0.1}."""
    return dict(flatten(options))


def route_to_terms(method: str, terms: list[tuple[float, Recipe]], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of each term: 'term.option' goes to that term, any other option to the only term that takes it.

    An option is 'margin', which goes to every part of the term that has a margin, or 'selection.margin'.
    """
    routed: list[dict[str, Any]] = [{} for _ in terms]
    names = [recipe.name for _, recipe in terms]
    for key, value in options.items():
        term, option = split_term(method, names, key)
        candidates = [i for i, name in enumerate(names) if term in ("", name)]
        owners = find_owners(terms, candidates, option, options)
        if not owners:
            raise EquimetricError(f"method {method!r} has no option {option!r}; {suggest_option(terms, option)}")
        if len(owners) > 1 and len({names[i] for i in owners}) == 1:
            raise EquimetricError(
                f"{method!r} names {names[owners[0]]!r} more than once, so option {option!r} is ambiguous; "
                "make each objective by itself and add them up"
            )
        if len(owners) > 1:
            choices = " or ".join(f"{names[i]}.{option}" for i in owners)
            raise EquimetricError(f"option {option!r} belongs to several terms of {method!r}; say {choices}")
        routed[owners[0]][option] = value
    return routed


def suggest_option(terms: list[tuple[float, Recipe]], option: str) -> str:
    """The end of the error for an option that no term has, with the options of the losses first."""
    loss_options = [name for _, recipe in terms for name in recipe.parts()[0].options]
    all_options = [name for _, recipe in terms for name in sorted(recipe.known_options())]
    same_form = [name for name in (*loss_options, *all_options) if ("." in name) == ("." in option)]
    # Parts other than the present ones have a margin or a scale, too.
    current = [name for name in same_form if any(recipe.accepts_option(name) for _, recipe in terms)]
    valid = current if translate_name(option, current) else same_form
    return did_you_mean(option, valid, likely=loss_options if "." not in option else ())


def split_term(method: str, names: list[str], key: str) -> tuple[str, str]:
    """'triplet.selection.margin' → ('triplet', 'selection.margin'); without a term, ('', key)."""
    first, dot, rest = key.partition(".")
    if not dot or (first in ROLES and first not in names):
        return "", key
    if first not in names:
        raise unknown_name(f"term of {method!r}", first, [*names, *ROLES])
    return first, rest


def find_owners(
    terms: list[tuple[float, Recipe]], candidates: list[int], option: str, options: Mapping[str, Any]
) -> list[int]:
    """Find the candidate terms that accept an option."""
    owners = [i for i in candidates if terms[i][1].accepts_option(option)]
    # An option of a part that another option replaces, such as `classes` beside references="proxies".
    owners = owners or [i for i in candidates if option in terms[i][1].known_options()]
    # The options of a user's own selection are not known beforehand.
    own_selection = {"selection", *(f"{recipe.name}.selection" for _, recipe in terms)}
    return owners or [i for i in candidates if any(callable(options.get(key)) for key in own_selection)]
