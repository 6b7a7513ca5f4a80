"""The documentation page of all methods, from the registry: `python -m equimetric.report.catalogue_page FILE`."""

import inspect
import sys
from pathlib import Path

from equimetric.components import FAMILIES, LOSSES, SELECTIONS, format_value
from equimetric.geometry import GEOMETRIES, HyperbolicGeometry, LpGeometry
from equimetric.objectives.recipe import Recipe
from equimetric.objectives.recipes import recipes

__all__ = ["catalogue_page"]

INTRODUCTION = """# All methods on one page

<!-- Made from the registry by `make docs`; do not edit by hand. -->

Every name below can be given to `em.objective(name, **options)`, to `method = "…"` in a configuration, and to
`equimetric methods NAME`. Names add up: `"contrastive+tcm"`. Options are flat; each goes to the part that owns it,
and the parts themselves can be exchanged with `geometry=`, `references=` and `selection=`.
"""

PARAMETRIC = {
    "`l1`, `l1.5`, `linf` …": LpGeometry,
    "`hyperbolic`, `hyperbolic0.5`, `hyperbolic1-clip5` …": HyperbolicGeometry,
}
"""Names of geometries with numbers in them."""


def catalogue_page() -> str:
    """The page as Markdown."""
    sections = [INTRODUCTION]
    every = sorted(recipes().values(), key=lambda recipe: recipe.name)
    for family, meaning in FAMILIES.items():
        chosen = [recipe for recipe in every if recipe.family == family]
        if chosen:
            sections += [f"## {family.capitalize()}\n\nA method of this family {meaning}.\n", *map(entry, chosen)]
    sections.append("## Selections\n\n| name | which pairs count | options |\n|---|---|---|")
    for selection in sorted(SELECTIONS.values(), key=lambda selection: selection.name):
        options = ", ".join(f"`{name}={format_value(value)}`" for name, value in selection.options.items())
        names = ", also ".join(f"`{name}`" for name in (selection.name, *selection.other_names))
        sections.append(f"| {names} | {cell(selection.summary)} | {options} |")
    sections.append("\n## Geometries\n\n| name | similarity |\n|---|---|")
    sections += [f"| `{geometry.name}` | {cell(geometry.summary)} |" for geometry in GEOMETRIES.values()]
    sections += [f"| {names} | {cell(first_line(geometry))} |" for names, geometry in PARAMETRIC.items()]
    return "\n".join(sections) + "\n"


def entry(recipe: Recipe) -> str:
    """One method: formula, parts, options, paper."""
    loss, selection, references = recipe.parts()
    geometry = recipe.geometry or loss.geometries[0]
    note = f"\n{recipe.note.capitalize()}.\n" if recipe.note else ""
    options = "\n".join(
        f"| `{name}` | `{format_value(value)}` | {recipe.search.get(name, '')} |"
        for name, value in recipe.defaults.items()
    )
    table = f"\n| option | default | search range |\n|---|---|---|\n{options}\n" if options else ""
    return (
        f"### `{recipe.name}`: {recipe.title}\n{note}\n"
        f"```text\n{inspect.getdoc(LOSSES[recipe.loss].definition)}\n```\n\n"
        f"Geometry `{geometry}`, references `{references.name}`, selection `{selection.name}`. {recipe.paper}.\n{table}"
    )


def first_line(definition: type) -> str:
    """The first line of a docstring, without its full stop."""
    return (inspect.getdoc(definition) or "").split("\n")[0].rstrip(".")


def cell(text: str) -> str:
    """Text with its column separators escaped."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(catalogue_page(), encoding="utf-8")
