"""`equimetric methods`."""

import inspect
from typing import Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from equimetric.cli.console import console
from equimetric.components import FAMILIES, LOSSES, format_value
from equimetric.errors import unknown_name
from equimetric.objectives.recipes import Recipe, find_recipe, recipes

__all__ = ["methods"]


def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method in full.")] = None,
    family: Annotated[str | None, typer.Option(help=f"Only one family: {', '.join(FAMILIES)}.")] = None,
) -> None:
    """List the methods with family, paper and options; with a name, explain that one."""
    if name is not None:
        show_one(find_recipe(name))
        return
    if family is not None and family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    for listed in FAMILIES if family is None else (family,):
        chosen = [recipe for recipe in recipes().values() if recipe.family == listed]
        if chosen:
            console.print(f"\n[bold]{listed.capitalize()}[/bold]: a method that {FAMILIES[listed]}", highlight=False)
        for recipe in sorted(chosen, key=lambda recipe: recipe.name):
            show_line(recipe)
    console.print("\nNames add up: 'contrastive+tcm'. More on one of them: equimetric methods NAME", style="dim")


def show_line(recipe: Recipe) -> None:
    """A method in a few lines: name, what it does, paper, options with their defaults."""
    options = ", ".join(f"{option}={format_value(value)}" for option, value in recipe.defaults.items())
    summary = recipe.note or LOSSES[recipe.loss].summary
    console.print(f"  {recipe.name}", style="cyan", highlight=False)
    for line in (summary, recipe.paper, options):
        console.print(Padding(Text(line), (0, 0, 0, 6)), style="" if line is summary else "dim")


def show_one(recipe: Recipe) -> None:
    """Everything the registry knows of a method."""
    loss, selection, references = recipe.parts()
    console.print(f"{recipe.title} ({recipe.name}), {recipe.family}: a method that {FAMILIES[recipe.family]}\n")
    console.print(inspect.getdoc(LOSSES[recipe.loss].definition) or "", markup=False, highlight=False)
    if recipe.note:
        console.print(f"\n{recipe.name}: {recipe.note}", highlight=False)
    console.print(f"\nPaper: {recipe.paper}", highlight=False)
    geometry = recipe.geometry or loss.geometries[0]
    console.print(f"Geometry {geometry}, references {references.name}, selection {selection.name}", highlight=False)
    table = Table("option", "default", "search range")
    for option, value in recipe.defaults.items():
        table.add_row(option, format_value(value), str(recipe.search.get(option, "")))
    console.print(table)
