"""`equimetric report`."""

from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import TRAIN, command
from equimetric.cli.console import console, show_failures, show_notes, show_path

__all__ = ["report_command"]


@command("report", panel=TRAIN, order=4, examples="equimetric report runs/demo")
def report_command(study: Annotated[Path, typer.Argument(help="Folder of a study, such as runs/demo.")]) -> None:
    """Write the report of a study again from its runs: the HTML page, and the table as md, csv and tex."""
    from equimetric.report import comparison_table, print_table, write_report
    from equimetric.studies import load_study

    record = load_study(study)
    page = write_report(record, study / "report")
    print_table(comparison_table(record), console)
    show_notes(record)
    show_path("\nReport", page)
    show_failures(record)
