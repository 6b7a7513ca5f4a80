"""`equimetric fit`."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from equimetric.cli.command import DEPLOY, OUT, command
from equimetric.cli.console import console, show, show_path
from equimetric.cli.options import Licence
from equimetric.escaping import one_line
from equimetric.progress import format_seconds

if TYPE_CHECKING:
    from equimetric.fitting import FitResult, Plan

__all__ = ["fit_command"]


@command(
    "fit",
    panel=DEPLOY,
    order=0,
    examples="""
    equimetric fit photos --out model
    equimetric fit photos --out model --minutes 30 --far 1e-3
    equimetric fit list.csv --label product --out model
    equimetric fit photos --dry-run
    """,
)
def fit_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER|LIST",
            help="A folder with one folder of images per class, or a .csv or .parquet list of images with labels.",
        ),
    ],
    out: Annotated[Path, typer.Option(*OUT, help="The folder to create for the model.")] = Path("model"),
    minutes: Annotated[float, typer.Option("--minutes", help="Time budget in minutes.")] = 10,
    far: Annotated[
        float | None,
        typer.Option("--far", help="Target false accept rate; by default 1e-2, or the smallest that the images allow."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look at the data, print the plan, and stop.")] = False,
    path: Annotated[str | None, typer.Option("--path", help="The column of a list with the paths.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="The column of a list with the classes.")] = None,
    backbone: Annotated[
        str, typer.Option("--backbone", help="A backbone of `equimetric backbones` whose weights come as a package.")
    ] = "efficientnet_lite0",
    licence: Licence = "unknown",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the parts and of training.")] = 0,
) -> None:
    """Make an embedding, a threshold with its certificate, and a report from a folder of images, within a time budget.

    No configuration: inspects the data, and prints its findings and the plan. Classes are divided into five parts: all
    choices are made on validation classes, the threshold is calibrated on others, and the test classes are opened
    once, at the end. Writes the folder of `equimetric export`, with plan.toml for `equimetric train`, study.toml
    for `equimetric compare`, and report.html.

    Features, trials and the run are kept in OUT.fit: the same command resumes from there after a stop.
    """
    from equimetric.fitting.budget import Budget
    from equimetric.fitting.fit import quiet_warnings, require_new, run_plan
    from equimetric.fitting.plan import make_plan

    budget = Budget(60 * minutes)
    if not dry_run:
        require_new(out)
    with quiet_warnings():
        plan = make_plan(source, far=far, seed=seed, backbone=backbone, path=path, label=label)
        show_plan(plan, minutes)
        if dry_run:
            return
        show("Progress", "bold")
        fitted = run_plan(plan, out, budget, licence=licence, notify=show_line)
    show_fitted(fitted, minutes)


def show_line(sentence: str) -> None:
    """One sentence as an item of a list."""
    show(textwrap.fill(one_line(sentence), console.width, initial_indent="  ", subsequent_indent="    "))


def show_plan(plan: "Plan", minutes: float) -> None:
    """Print the findings on the data, and the plan."""
    show("Data", "bold")
    for line in plan.inspection.describe():
        show_line(line)
    show("Plan", "bold")
    for line in plan.describe():
        show_line(line)
    show_line(f"time: {minutes:g} minutes for all of it")


def show_fitted(fitted: "FitResult", minutes: float) -> None:
    """Print the results on the test classes, the certificate's rates, and the paths."""
    from equimetric.fitting.report import outcome_table
    from equimetric.report import print_table

    print_table(outcome_table(fitted.outcome), console)
    show_path("model", fitted.folder)
    show_path("report", fitted.folder / "report.html")
    show_path("run", fitted.run)
    show(f"took {format_seconds(fitted.seconds)} of {minutes:g} minutes")
