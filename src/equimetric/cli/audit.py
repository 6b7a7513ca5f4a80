"""`equimetric audit`."""

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated

import typer

from equimetric.cli.catalogue import complete
from equimetric.cli.command import TRAIN, command
from equimetric.cli.console import build_table, console, show
from equimetric.errors import unknown_name

if TYPE_CHECKING:
    from equimetric.studies.ledger import Ledger

__all__ = ["audit_command"]

EXIT_UNFAIR = 1
"""Exit code of a comparison that is not fair, or not shown to be."""

FORMATS = ("text", "json", "md")


def list_examples() -> Iterable[str]:
    """Names of the comparisons that are part of the package, without loading anything."""
    folder = files("equimetric").joinpath("studies", "ledger", "examples")
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir())


@command(
    "audit",
    panel=TRAIN,
    order=5,
    examples="""
    equimetric audit runs/my-study
    equimetric audit unbiased-table-1
    equimetric audit my-comparison.toml --format md

    A comparison made elsewhere (my-comparison.toml):
    title = "Ours against theirs"
    common = { backbone = "ResNet-50", pretrained = "ImageNet", intervals = false }
    methods.Ours = { dim = 512, optimizer = "AdamW" }
    methods.Theirs = { dim = 64, optimizer = "not stated" }
    """,
)
def audit_command(
    comparison: Annotated[
        str,
        typer.Argument(
            help="Folder of a study, such as runs/demo; a described comparison (.toml); or a shipped one.",
            autocompletion=complete(list_examples),
        ),
    ],
    form: Annotated[str, typer.Option("--format", help=f"How to print it: {', '.join(FORMATS)}.")] = "text",
) -> None:
    """Say whether a comparison is fair, with the six causes of unfair comparison of the Reality Check as checklist.

    Causes: another architecture, dimension, augmentation or optimiser, batch normalisation frozen for some only, no
    intervals. Further factors: data, batch, normalisation, budgets, selection on test classes, shared classes and
    images. A factor may be declared to vary or be waived for a reason; what a description leaves out is not stated.

    Shipped: unbiased-table-1, unbiased-table-3 (of "Unbiased evaluation of deep metric learning algorithms").

    Exit codes: 0 fair, 1 not fair or not shown to be, 2 the comparison cannot be read.
    """
    from equimetric.studies.ledger.audit import audit

    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    ledger = audit(comparison)
    if form == "json":
        typer.echo(json.dumps({"verdict": ledger.verdict, "sentence": ledger.sentence, **ledger.to_dict()}))
    elif form == "md":
        from equimetric.studies.ledger.text import ledger_to_markdown

        typer.echo(ledger_to_markdown(ledger), nl=False)
    else:
        show_ledger(ledger)
    if ledger.verdict != "fair":
        raise typer.Exit(EXIT_UNFAIR)


def show_ledger(ledger: "Ledger") -> None:
    """The verdict, then the checklist, then notes."""
    from equimetric.studies.ledger.text import CHECKLIST_HEADINGS, checklist, closing_lines

    show(ledger.title, wrap=True, style="bold")
    if ledger.source:
        show(ledger.source, wrap=True, style="dim")
    show(ledger.sentence, wrap=True)
    console.print(build_table(CHECKLIST_HEADINGS, checklist(ledger)))
    for line in closing_lines(ledger):
        show(line, wrap=True)
