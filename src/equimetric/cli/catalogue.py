"""Names for lists and completion, read from source: nothing here imports torch."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from equimetric.registry import Declaration, read_declarations, read_options
from equimetric.search_space import SearchSpace

__all__ = [
    "DatasetSummary",
    "MethodSummary",
    "complete",
    "list_backbones",
    "list_datasets",
    "list_methods",
    "list_transforms",
]


@dataclass(frozen=True)
class MethodSummary:
    """A method of the catalogue in a few words; `options` with their defaults, `search` their ranges."""

    name: str
    title: str
    family: str
    summary: str
    note: str
    docstring: str
    paper: str
    geometry: str
    references: str
    selection: str
    options: Mapping[str, Any]
    search: Mapping[str, SearchSpace]
    known_as: tuple[str, ...]


def list_methods() -> dict[str, MethodSummary]:
    """Every loss with the parts it names first, and every recipe, by name."""
    losses, selections, references = (
        {declaration.name: declaration for declaration in read_declarations(f"equimetric.{package}", decorator)}
        for package, decorator in (("losses", "loss"), ("selection", "selection"), ("references", "references"))
    )
    loss_rows = (
        {"name": name, "title": loss.keywords.get("title", name), "loss": name} for name, loss in losses.items()
    )
    methods = {}
    for recipe in (*loss_rows, *recipe_rows()):
        loss = losses[recipe["loss"]]
        selection = selections[recipe.get("selection") or "all"]
        reference = references[recipe.get("references") or first_declared(loss, "references", "batch")]
        methods[recipe["name"]] = summarize_method(recipe, loss, selection, reference)
    return methods


def summarize_method(
    recipe: Mapping[str, Any], loss: Declaration, selection: Declaration, references: Declaration
) -> MethodSummary:
    """A recipe with what it inherits from its parts, as `equimetric.objectives.recipe.Recipe` does."""
    own_options = recipe.get("options") or {}
    named = [part.keywords.get("paper") or "" for part in (loss, selection)]
    papers = dict.fromkeys(paper for names in named for paper in names.split("; ") if paper)
    options = {**references.options, **selection.options, **loss.options, **own_options}
    ranges, reference_ranges, selection_ranges = (
        part.keywords.get("search", {}) for part in (loss, references, selection)
    )
    names = loss.keywords.get("known_as", ())
    set_by_recipe = {option: space for option, space in reference_ranges.items() if option in own_options}
    return MethodSummary(
        name=recipe["name"],
        title=recipe["title"],
        family=loss.keywords.get("family", ""),
        summary=recipe.get("note") or loss.summary,
        note=recipe.get("note") or "",
        docstring=loss.docstring,
        paper=recipe.get("source") or "; ".join(papers),
        geometry=recipe.get("geometry") or first_declared(loss, "geometry", "cosine"),
        references=references.name,
        selection=selection.name,
        options={name: value for name, value in options.items() if value is not Parameter.empty},
        search={**set_by_recipe, **ranges, **selection_ranges, **(recipe.get("ranges") or {})},
        known_as=(*recipe.get("known_as", ()), *(names if recipe["name"] == loss.name else ())),
    )


def first_declared(loss: Declaration, keyword: str, default: str) -> str:
    """The first of the geometries, or references, that a loss is declared for."""
    declared = loss.keywords.get(keyword, default)
    return str(declared if isinstance(declared, str) else declared[0])


def recipe_rows() -> list[dict[str, Any]]:
    """The rows of the catalogue as plain data."""
    from equimetric.objectives.recipes import ROWS

    return [vars(row) for row in ROWS]


@dataclass(frozen=True)
class DatasetSummary:
    """A data set by name: `options` with their defaults, `required` ones without."""

    name: str
    description: str
    required: tuple[str, ...]
    options: Mapping[str, Any]


def list_datasets() -> dict[str, DatasetSummary]:
    """Every data set by name; archives have the options of `ArchiveLoader` beside their own."""
    shared = read_options("equimetric.data.archive", "ArchiveLoader", "__call__")
    summaries = {}
    for declared in sorted(read_declarations("equimetric.data", "dataset"), key=lambda declared: declared.name):
        is_archive = any(decorator.endswith(".loader") for decorator in declared.decorators)
        options = {**(shared if is_archive else {}), **declared.options}
        summaries[declared.name] = DatasetSummary(
            name=declared.name,
            description=declared.docstring.partition("\n")[0],
            required=tuple(name for name, value in options.items() if value is Parameter.empty),
            options={name: value for name, value in options.items() if value is not Parameter.empty},
        )
    return summaries


def list_transforms() -> dict[str, str]:
    """Name → description of every transform."""
    return {
        declaration.name: declaration.summary for declaration in read_declarations("equimetric.data", "image_transform")
    }


def list_backbones() -> dict[str, Declaration]:
    """Every backbone defined here by name, as it is declared."""
    return {declaration.name: declaration for declaration in read_declarations("equimetric.backbones", "backbone")}


def complete(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Shell completion of an argument: those names that begin with what is typed."""

    def match_prefix(incomplete: str) -> list[str]:
        return sorted(name for name in names() if name.startswith(incomplete))

    return match_prefix
