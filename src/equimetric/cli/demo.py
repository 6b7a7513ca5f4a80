"""`equimetric demo`."""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.compare import run_and_report

__all__ = ["demo"]


def demo(
    output: Annotated[Path, typer.Option(help="Folder for runs and report.")] = Path("runs"),
) -> None:
    """Compare five methods fairly on real images: typeset characters never seen in training.

    Trains five methods with three seeds each on built-in data (about five minutes on two cores), prints the table
    with intervals and writes an HTML report. Killed or stopped, the same command goes on where it stood.
    """
    with as_file(files("equimetric.studies") / "demo.toml") as study:
        run_and_report(study, output, {}, retry_failed=False)
