"""The error for a method that is not known: what it is called here, or which part of an objective it is."""

from collections.abc import Mapping

from equimetric.components import LOSSES, REFERENCES, SELECTIONS
from equimetric.errors import EquimetricError, unknown_name
from equimetric.geometry import GEOMETRIES
from equimetric.objectives.recipe import Recipe
from equimetric.other_names import KnownAs, spellings, translate_name

__all__ = ["unknown_method"]

REMEDIES = {
    "MultipleLosses": "add names up, as in 'contrastive+0.5*tcm'",
    "SelfSupervisedLoss": "give both views of an image one label: labels = torch.arange(n).repeat(2)",
    "GenericPairLoss": "give a function of Pairs of your own: em.objective(my_loss)",
    "BaseMetricLossFunction": "give a function of Pairs of your own: em.objective(my_loss)",
}
"""What to do where another library has a class and here is none."""


def unknown_method(name: str, known: Mapping[str, Recipe]) -> EquimetricError:
    """The error for a name that no method has."""
    known_as = {
        recipe.name: (recipe.title, *recipe.known_as, *(LOSSES[loss].known_as if loss in LOSSES else ()))
        for loss, recipe in known.items()
    }
    remedy = REMEDIES.get(name) or name_part(name, translate_name(name, known, known_as))
    if remedy:
        return EquimetricError(f"there is no method {name!r}; {remedy}")
    return unknown_name("method", name, known, known_as)


def name_part(name: str, methods: list[str]) -> str:
    """The part of an objective that a name stands for; empty where it stands for one of these methods."""
    whole = spellings(name)[0]
    is_other = whole not in [spellings(method)[0] for method in methods]
    # What a class of another library is, its name often says.
    said = {"selection": whole.endswith("miner"), "geometry": whole.endswith(("distance", "similarity"))}
    parts: dict[str, KnownAs] = {
        "selection": SELECTIONS.known_as,
        "references": REFERENCES.known_as,
        "geometry": dict.fromkeys(GEOMETRIES, ()),
    }
    for part, known_as in parts.items():
        ours = translate_name(name, known_as, known_as)
        if ours and (not methods or (is_other and said.get(part))):
            return f"it is a {part} here: give a method {part}={' or '.join(map(repr, ours))}"
    return ""
