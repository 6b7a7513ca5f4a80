"""`equimetric report`."""

from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import TRAIN, command
from equimetric.cli.console import show_failures, show_notes, show_path, show_tables

__all__ = ["report_command"]


FORMATS = {"md": "to_markdown", "csv": "to_csv", "tex": "to_latex", "json": "to_json"}


@command(
    "report",
    panel=TRAIN,
    order=4,
    examples="""
    equimetric report runs/demo
    equimetric report runs/demo --format tex > table.tex
    """,
)
def report_command(
    study: Annotated[Path, typer.Argument(help="Folder of a study, such as runs/demo.")],
    form: Annotated[
        str | None, typer.Option("--format", help=f"Print the tables in this format instead: {', '.join(FORMATS)}.")
    ] = None,
) -> None:
    """Write the report of a study again from its runs: the HTML page, and its tables as md, csv and tex."""
    from equimetric import report
    from equimetric.errors import unknown_name
    from equimetric.report import study_tables, write_report
    from equimetric.studies import load_study

    if form is not None and form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    record = load_study(study)
    if form is not None:
        for table in study_tables(record).values():
            typer.echo(getattr(report, FORMATS[form])(table))
        return
    page = write_report(record, study / "report")
    show_tables(record)
    show_notes(record)
    show_path("\nReport", page)
    show_failures(record)
