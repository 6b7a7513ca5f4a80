"""Declare and register commands: `@command("train", …)` in a file of its own."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from equimetric.registry import Registry

__all__ = ["COMMANDS", "DEPLOY", "EVALUATE", "LOOK_UP", "OUT", "TRAIN", "Command", "command"]

TRAIN, EVALUATE, DEPLOY, LOOK_UP = PANELS = ("Train and compare", "Evaluate", "Deploy", "Look up")
"""Headings of the command list, in this order; a command may name another."""

OUT = ("--out", "--output", "-o")
"""The option for a command's output; examples use the first spelling."""

Function = TypeVar("Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Attributes:
        name: name on the command line; 'datasets check' is the command 'check' of the group 'datasets'.
        function: function whose parameters are the arguments and options, and whose docstring is the help.
        panel: the heading under which `equimetric --help` lists it.
        order: its place below that heading, smallest first.
        examples: command lines or a configuration, shown literally at the end of the help.
        overrides: whether it takes any `--key value`; the function reads them from `context.args`.

    """

    name: str
    function: Callable[..., None]
    panel: str
    order: int
    examples: str
    overrides: bool

    @property
    def help(self) -> str:
        """The docstring, one line per paragraph, and the examples."""
        text = inspect.getdoc(self.function) or ""
        paragraphs = [paragraph.replace("\n", " ") for paragraph in text.split("\n\n")]
        if self.examples:
            # A backspace on a line of its own keeps the line breaks of the paragraph after it.
            paragraphs += [f"\b\n{block}" for block in f"Examples:\n{inspect.cleandoc(self.examples)}".split("\n\n")]
        return "\n\n".join(paragraphs)

    @property
    def position(self) -> tuple[int, int, str]:
        """Sorts commands as the help lists them."""
        panel = PANELS.index(self.panel) if self.panel in PANELS else len(PANELS)
        return panel, self.order, self.name


COMMANDS: Registry[Command] = Registry("command", "equimetric.cli", decorator="command")


def command(
    name: str, *, panel: str, order: int = 100, examples: str = "", overrides: bool = False
) -> Callable[[Function], Function]:
    """Register a function as a command; see `Command` for the arguments."""

    def decorate(function: Function) -> Function:
        record = Command(name, function, panel, order, examples, overrides)
        COMMANDS.add(name, record, module=function.__module__)
        return function

    return decorate
