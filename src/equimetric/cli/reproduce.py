"""`equimetric reproduce`."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import TRAIN, command
from equimetric.cli.console import progress_bar, show, show_error

__all__ = ["reproduce_command"]

EXIT_DIFFERENT = 1
"""Exit code where a score differs; 0 where all are equal, 2 a user's mistake."""


@command(
    "reproduce",
    panel=TRAIN,
    order=6,
    examples="""
    equimetric reproduce runs/demo/Contrastive/0-1f…
    equimetric reproduce runs/demo --first 3
    """,
)
def reproduce_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or of a study.")],
    first: Annotated[int | None, typer.Option(min=1, help="Reproduce only the first N runs of a study.")] = None,
) -> None:
    """Train finished runs again from their stored configuration, and compare the scores.

    Scores of test and validation classes are compared to the last bit. Where they differ, changes since then are
    listed: code, libraries, processor. Nothing of the run is overwritten.

    Exit codes: 0 all are equal, 1 some differ, 2 there is no such run.
    """
    from equimetric.errors import EquimetricError
    from equimetric.studies.reproduction import find_runs, reproduce_run

    if not folder.is_dir():
        raise EquimetricError(f"there is no folder {str(folder)!r}; give the folder of a run or of a study")
    different = repeated = 0
    for run in islice(find_runs(folder), first):
        with progress_bar() as bar:
            task = bar.add_task(run.name, total=None, figures="")
            reproduction = reproduce_run(run, lambda step, _: bar.update(task, completed=step))  # noqa: B023
        repeated += 1
        different += not reproduction.matches
        (show if reproduction.matches else show_error)(str(reproduction))
    if not repeated:
        raise EquimetricError(f"{str(folder)!r} has no finished run to reproduce")
    if different:
        raise typer.Exit(EXIT_DIFFERENT)
