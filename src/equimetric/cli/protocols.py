"""`equimetric protocols`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.command import LOOK_UP, command
from equimetric.cli.console import build_table, console, show

if TYPE_CHECKING:
    from equimetric.protocols import Protocol

__all__ = ["protocols_command"]


def protocol_names() -> list[str]:
    """Names for completion."""
    from equimetric.protocols import list_protocols

    return list(list_protocols())


@command(
    "protocols",
    panel=LOOK_UP,
    order=4,
    examples="""
    equimetric protocols
    equimetric protocols reality-check
    equimetric protocols reality-check --toml > mine.toml

    A protocol of your own (mine.toml):
    protocol = "mine"
    version = 1
    title = "Reality check in 500 steps"
    extends = "reality-check"
    study.training.steps = 500
    """,
)
def protocols_command(
    name: Annotated[
        str | None, typer.Argument(help="Explain this protocol, by name or file.", autocompletion=protocol_names)
    ] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print the protocol as a file to start your own from.")] = False,
) -> None:
    """List the protocols under which methods are compared, or explain one of them.

    A study names its protocol (protocol = "reality-check") and gives what that leaves open: the data, and, where you
    want others, the methods. A protocol of your own is a file that extends one and differs in some keys.
    """
    from equimetric.protocols import find_protocol, list_protocols

    if name is None:
        rows = ((entry.protocol, str(entry.version), entry.title) for entry in list_protocols().values())
        console.print(build_table(("protocol", "version", "what it is"), rows))
        show("To explain one: equimetric protocols NAME", style="dim")
        return
    protocol = find_protocol(name)
    if toml:
        import tomli_w

        typer.echo(tomli_w.dumps(protocol.model_dump(exclude_none=True)))
        return
    explain_protocol(protocol)


def explain_protocol(protocol: "Protocol") -> None:
    """Title, paper, text, and every value that a study takes from it."""
    from equimetric.dotted import flatten, format_setting

    show(f"{protocol.protocol} {protocol.version}: {protocol.title}", wrap=True)
    if protocol.paper:
        show(f"\nPaper: {protocol.paper}", wrap=True)
    for paragraph in protocol.text.strip().split("\n\n"):
        # Indented lines are literal.
        literal = paragraph.startswith("    ")
        show(f"\n{paragraph if literal else ' '.join(paragraph.split())}", wrap=not literal)
    for key, what in protocol.requires.items():
        show(f"\nNeeds {key}: {what.strip()}", wrap=True)
    values = [(key, value) for key, value in flatten(protocol.study) if not key.startswith(("methods.", "sweeps."))]
    if values:
        console.print(build_table(("key", "value"), ((key, format_setting(value)) for key, value in values)))
    sweeps = protocol.study.get("sweeps", {})
    if sweeps:
        console.print(
            build_table(
                ("sweep", "points"), (row for name, sweep in sweeps.items() for row in describe_sweep(name, sweep))
            )
        )
    methods = protocol.study.get("methods", {})
    if methods:
        rows = ((row, table.get("method", row), describe_search(table)) for row, table in methods.items())
        console.print(build_table(("row", "method", "tuned"), rows))
    for data, changes in protocol.datasets.items():
        differing = ", ".join(f"{key} = {format_setting(value)}" for key, value in flatten(changes))
        show(f"On {data}: {differing}", wrap=True)
    for data, left_out in protocol.left_out.items():
        show(f"On {data} without {', '.join(left_out)}", wrap=True)


def describe_sweep(name: str, sweep: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and points of a sweep, and those of each kind of methods that has its own."""
    kinds = sweep.get("kinds", {})
    return [
        (name, describe_points(sweep)),
        *((f"{name} ({kind})", describe_points({"points": points})) for kind, points in kinds.items()),
    ]


def describe_points(sweep: Mapping[str, Any]) -> str:
    """'model.dim = 64, 128' for values of one key; else a line for each point with all it changes."""
    from equimetric.dotted import flatten, format_setting

    if "values" in sweep:
        return f"{sweep['key']} = {', '.join(map(format_setting, sweep['values']))}"
    return "\n".join(
        f"{point}: {', '.join(f'{key} = {format_setting(value)}' for key, value in flatten(changes))}"
        for point, changes in sweep["points"].items()
    )


def describe_search(table: Mapping[str, Any]) -> str:
    """'margin -0.2…2 uniform, temperature 0.01…100 log'."""
    from equimetric.dotted import format_setting

    ranges = []
    for name, space in table.get("search", {}).items():
        (kind, bounds), *_ = space.items()
        values = ", ".join(map(format_setting, bounds)) if kind == "choice" else "…".join(map(format_setting, bounds))
        ranges.append(f"{name} {values}" + ("" if kind == "choice" else f" {kind}"))
    return "; ".join(ranges)
