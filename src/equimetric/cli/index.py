"""Names for lists and completion, read from source: nothing here imports torch."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from equimetric.registry import Declaration, read_declarations

__all__ = ["MethodSummary", "complete", "list_backbones", "list_datasets", "list_methods"]


@dataclass(frozen=True)
class MethodSummary:
    """A method of the catalogue in a few words; `options` with their defaults."""

    name: str
    family: str
    summary: str
    paper: str
    options: Mapping[str, Any]


def list_methods() -> dict[str, MethodSummary]:
    """Every loss with the parts it names first, and every recipe, by name."""
    losses, selections, references = (
        {found.name: found for found in read_declarations(f"equimetric.{package}", decorator)}
        for package, decorator in (("losses", "loss"), ("selection", "selection"), ("references", "references"))
    )
    methods = {}
    for recipe in (*({"name": name, "loss": name} for name in losses), *recipe_rows()):
        loss = losses[recipe["loss"]]
        selection = selections[recipe.get("selection") or "all"]
        parts = (references[recipe.get("references") or default_references(loss)], selection, loss)
        papers = dict.fromkeys(paper for part in (loss, selection) if (paper := part.keywords.get("paper")))
        options = {name: default for part in parts for name, default in part.options.items()}
        options |= recipe.get("options") or {}
        methods[recipe["name"]] = MethodSummary(
            name=recipe["name"],
            family=loss.keywords.get("family", ""),
            summary=recipe.get("note") or loss.summary,
            paper=recipe.get("source") or "; ".join(papers),
            options={name: value for name, value in options.items() if value is not Parameter.empty},
        )
    return methods


def default_references(loss: Declaration) -> str:
    """The references that a loss names first."""
    kinds = loss.keywords.get("references", "batch")
    return str(kinds if isinstance(kinds, str) else kinds[0])


def recipe_rows() -> list[dict[str, Any]]:
    """The rows of the catalogue as plain data."""
    from equimetric.objectives.recipes import ROWS

    return [vars(row) for row in ROWS]


def list_datasets() -> dict[str, str]:
    """Name → description of every data set."""
    declared = read_declarations("equimetric.data", "dataset") + read_declarations("equimetric.data", "builtin_dataset")
    return {found.name: found.summary for found in sorted(declared, key=lambda found: found.name)}


def list_backbones() -> dict[str, str]:
    """Name → description of every backbone defined here."""
    return {found.name: found.summary for found in read_declarations("equimetric.backbones", "backbone")}


def complete(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Shell completion of an argument: those names that begin with what is typed."""

    def matching(incomplete: str) -> list[str]:
        return sorted(name for name in names() if name.startswith(incomplete))

    return matching
