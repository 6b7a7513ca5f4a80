"""`equimetric methods`."""

import inspect
from typing import Annotated

import typer

from equimetric.cli.catalogue import MethodSummary, complete, list_methods
from equimetric.cli.command import LOOK_UP, command
from equimetric.cli.console import build_table, console, literal, show
from equimetric.cli.own_methods import load_methods
from equimetric.errors import unknown_name
from equimetric.families import FAMILIES

__all__ = ["methods_command"]


@command(
    "methods",
    panel=LOOK_UP,
    order=1,
    examples="""
    equimetric methods
    equimetric methods --family proxy
    equimetric methods multi_similarity
    equimetric methods my_losses:gap
    """,
)
def methods_command(
    name: Annotated[
        str | None, typer.Argument(help="Explain this method.", autocompletion=complete(list_methods))
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help=f"List one family only: {', '.join(FAMILIES)}.", autocompletion=complete(lambda: FAMILIES)),
    ] = None,
) -> None:
    """List the methods with their papers and options, or explain one of them.

    Explaining a method prints its formula, its parts, and for each option the default and the search range.
    """
    if name is not None:
        explain_method(name)
        return
    if family is not None and family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    methods = sorted(list_methods().values(), key=lambda method: method.name)
    for family_name in FAMILIES if family is None else (family,):
        chosen = [method for method in methods if method.family == family_name]
        if chosen:
            heading = literal(f"\n{family_name.capitalize()}: a method that {FAMILIES[family_name]}")
            heading.stylize("bold", 0, 1 + len(family_name))
            console.print(heading)
        for method in chosen:
            show_summary(method)
    show("\nNames add up: 'contrastive+tcm'. To explain one: equimetric methods NAME", style="dim")


def show_summary(method: MethodSummary) -> None:
    """A few lines: name, what the method does, paper, options with their defaults."""
    from rich.padding import Padding

    options = ", ".join(f"{option}={value}" for option, value in method.options.items())
    console.print(literal(f"  {method.name}", "cyan"))
    for line, style in ((method.summary, ""), (method.paper, "dim"), (options, "dim")):
        if line:
            console.print(Padding(literal(line, style), (0, 0, 0, 6)))


def explain_method(name: str) -> None:
    """Everything the registry knows about a method."""
    if ":" in name:
        from equimetric.objectives.recipes import find_recipe

        load_methods(name)
        name = find_recipe(name).name
    methods = list_methods()
    if ":" in name:
        explain_own(name)
        return
    if name not in methods:
        from equimetric.objectives.recipes import recipes
        from equimetric.objectives.unknown_method import unknown_method

        raise unknown_method(name, recipes())
    method = methods[name]
    show(f"{method.title} ({method.name}), {method.family}: a method that {FAMILIES[method.family]}\n", wrap=True)
    show(method.docstring)
    if method.note:
        show(f"\n{method.name}: {method.note}", wrap=True)
    show(f"\nPaper: {method.paper}", wrap=True)
    if method.known_as:
        show(f"Elsewhere: {', '.join(method.known_as)}", wrap=True)
    show(f"Geometry {method.geometry}, references {method.references}, selection {method.selection}")
    rows = ((option, str(value), str(method.search.get(option, ""))) for option, value in method.options.items())
    console.print(build_table(("option", "default", "search range"), rows))


def explain_own(name: str) -> None:
    """A loss of the user's own that has no name in the registry."""
    from equimetric.objectives.recipes import find_recipe

    recipe = find_recipe(name)
    loss, selection, references = recipe.parts()
    show(f"{recipe.title} ({name}), a loss of your own\n", wrap=True)
    show(inspect.getdoc(loss.definition) or "It has no docstring.")
    show(f"\nGeometry {loss.geometries[0]}, references {references.name}, selection {selection.name}")
    rows = ((option, str(value), "") for option, value in recipe.defaults.items())
    console.print(build_table(("option", "default", "search range"), rows))
