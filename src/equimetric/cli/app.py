"""The application that the registered commands form, and its entry point."""

import os
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer
from rich.markup import escape
from typer.main import get_command

from equimetric.cli.command import COMMANDS, Command
from equimetric.cli.console import show_error
from equimetric.errors import EquimetricError
from equimetric.escaping import show_plain_warnings
from equimetric.progress import set_progress_output
from equimetric.stopping import Stopped, end_on_signals

__all__ = ["build_app", "build_command", "main"]

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}


def build_command() -> Callable[..., Any]:
    """The application as a command whose help shows every text as it is written."""
    command = get_command(build_app())
    keep_help_literal(command)
    return command


def keep_help_literal(command: Any) -> None:
    """Keep typer from reading 'equimetric[ray]' as markup, in all help of a command, its options and its members."""
    for described in (command, *command.params):
        if described.help:
            described.help = escape(described.help)
    for member in getattr(command, "commands", {}).values():
        keep_help_literal(member)


def build_app() -> typer.Typer:
    """All registered commands as one application; 'datasets check' becomes a command of the group 'datasets'."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP_NAMES)
    app.callback()(show_options)
    members: dict[str, list[Command]] = {}
    for command in sorted(COMMANDS.values(), key=lambda command: command.position):
        members.setdefault(command.name.split()[0], []).append(command)
    for name, commands in members.items():
        panel = (COMMANDS.get(name) or commands[0]).panel
        if [command.name for command in commands] == [name]:
            add_command(app, commands[0], panel)
        else:
            app.add_typer(build_group(name, commands), name=name, rich_help_panel=panel)
    return app


def build_group(name: str, commands: list[Command]) -> typer.Typer:
    """The commands 'NAME …' as a group; the command NAME itself runs where no other is given."""
    base = COMMANDS.get(name)
    group = typer.Typer(no_args_is_help=base is None, context_settings=HELP_NAMES)
    if base is not None:
        group.callback(invoke_without_command=True, help=base.help)(end_on_signal(base.function))
    for command in commands:
        if command is not base:
            add_command(group, command, None)
    return group


def add_command(app: typer.Typer, command: Command, panel: str | None) -> None:
    """Add a command under its last word."""
    app.command(
        command.name.split()[-1],
        help=command.help,
        rich_help_panel=panel,
        context_settings={**HELP_NAMES, **(OVERRIDES if command.overrides else {})},
    )(end_on_signal(command.function))


def end_on_signal(function: Callable[..., None]) -> Callable[..., None]:
    """The function of a command that ends in one sentence when a signal stops it."""

    @wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except Stopped as stop:
            # Here, because typer keeps no message of an interrupt.
            if int(os.environ.get("RANK", 0)) == 0:
                show_error(str(stop))
            raise typer.Exit(stop.exit_code) from None

    return wrapped


def show_version(value: bool) -> None:
    """Print the version and exit."""
    if value:
        from importlib.metadata import version

        typer.echo(f"equimetric {version('equimetric')}")
        raise typer.Exit


def load_named_plugins(names: list[str] | None) -> None:
    """Load the plug-ins that the caller names for a command."""
    if names:
        from equimetric.plugins import load_plugins

        load_plugins(*names)


def show_options(
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=show_version, is_eager=True),
    plugins: list[str] = typer.Option(  # noqa: B008
        [],
        "--plugins",
        metavar="FILE",
        help="A file or module with components of your own, for any command; may be given several times.",
        callback=load_named_plugins,
    ),
) -> None:
    """Deep metric learning with fair comparison built in. Start with: equimetric demo."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence on standard error and exit code 2."""
    set_progress_output("lines")
    try:
        with end_on_signals(), warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            show_plain_warnings()
            build_command()(prog_name="equimetric")
    except EquimetricError as error:
        show_error(str(error))
        sys.exit(2)
    except Stopped as stop:
        show_error(str(stop))
        sys.exit(stop.exit_code)
