"""The error for an unknown method: its name here, or the part of an objective that it is."""

from collections.abc import Mapping

from equimetric.components import LOSSES, REFERENCES, SELECTIONS
from equimetric.errors import EquimetricError, unknown_name
from equimetric.geometry import GEOMETRIES
from equimetric.objectives.recipe import Recipe
from equimetric.other_names import KnownAs, spellings, translate_name

__all__ = ["method_names_elsewhere", "unknown_method"]

REMEDIES = {
    "MultipleLosses": "add names up, as in 'contrastive+0.5*tcm'",
    "SelfSupervisedLoss": "give both views of an image one label: labels = torch.arange(n).repeat(2)",
    "GenericPairLoss": "give a function of Pairs of your own: em.objective(my_loss)",
    "BaseMetricLossFunction": "give a function of Pairs of your own: em.objective(my_loss)",
}
"""Advice for classes of other libraries that have no counterpart here."""


def unknown_method(name: str, recipes: Mapping[str, Recipe]) -> EquimetricError:
    """The error for a name that no method has."""
    known_as = method_names_elsewhere(recipes)
    remedy = REMEDIES.get(name) or name_part(name, translate_name(name, recipes, known_as))
    if remedy:
        return EquimetricError(f"there is no method {name!r}; {remedy}")
    return unknown_name("method", name, recipes, known_as)


def method_names_elsewhere(recipes: Mapping[str, Recipe]) -> dict[str, tuple[str, ...]]:
    """Method → its title, and its names in other libraries and papers."""
    return {
        recipe.name: (recipe.title, *recipe.known_as, *(LOSSES[loss].known_as if loss in LOSSES else ()))
        for loss, recipe in recipes.items()
    }


def name_part(name: str, methods: list[str]) -> str:
    """Name the part of an objective that a name means; empty where it means one of these methods."""
    simplified = spellings(name)[0]
    is_other = simplified not in [spellings(method)[0] for method in methods]
    # The name of a class of another library often tells its kind.
    kind_hint = {"selection": simplified.endswith("miner"), "geometry": simplified.endswith(("distance", "similarity"))}
    parts: dict[str, KnownAs] = {
        "selection": SELECTIONS.known_as,
        "references": REFERENCES.known_as,
        "geometry": dict.fromkeys(GEOMETRIES, ()),
    }
    for part, known_as in parts.items():
        matches = translate_name(name, known_as, known_as)
        if matches and (not methods or (is_other and kind_hint.get(part))):
            return f"it is a {part} here: give a method {part}={' or '.join(map(repr, matches))}"
    return ""
