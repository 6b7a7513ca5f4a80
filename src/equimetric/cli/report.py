"""`equimetric report`."""

from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.console import console
from equimetric.report.html import write_report
from equimetric.report.table import print_table
from equimetric.studies import load_study
from equimetric.studies.table import comparison_table

__all__ = ["report"]


def report(study: Annotated[Path, typer.Argument(help="Folder of a study, such as runs/demo.")]) -> None:
    """Write the tables (md, csv, tex) and the HTML report of a study anew, from its runs on disk."""
    record = load_study(study)
    page = write_report(record, study / "report")
    print_table(comparison_table(record), console)
    console.print(f"\nReport: {page}", highlight=False, soft_wrap=True)
