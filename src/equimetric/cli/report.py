"""`equimetric report`."""

from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import TRAIN, command
from equimetric.cli.console import show_failures, show_notes, show_path, show_tables

__all__ = ["report_command"]


FORMATS = {"md": "to_markdown", "csv": "to_csv", "tex": "to_latex", "json": "to_json"}
FIGURES = ("svg", "png", "pdf")


@command(
    "report",
    panel=TRAIN,
    order=4,
    examples="""
    equimetric report runs/demo
    equimetric report runs/demo --format tex > table.tex
    equimetric report runs/demo --format pdf --output figures
    equimetric report runs/single/my-run
    equimetric report embeddings.npz --output my-report
    """,
)
def report_command(
    source: Annotated[
        Path, typer.Argument(help="Folder of a study or of a run, or a file of embeddings and labels, such as .npz.")
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"Print the tables instead ({', '.join(FORMATS)}), or write the figures as files "
            f"({', '.join(FIGURES)}).",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the page or the figures; by default in the study, beside a file.")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="The .csv or .npy with the labels of an .npy file.")] = None,
) -> None:
    """Write the report of a study, a run or embeddings: one HTML page, and its tables as md, csv and tex.

    The page holds all its scripts, figures and images, and opens without a network. Figures need the extra `report`;
    without it the page has its tables and words.
    """
    from equimetric import report
    from equimetric.errors import unknown_name
    from equimetric.report import StudyRecord, figures_of, record_tables, write_figures, write_report
    from equimetric.studies.report_records import load_record

    if form is not None and form not in (*FORMATS, *FIGURES):
        raise unknown_name("format", form, (*FORMATS, *FIGURES))
    record = load_record(source, labels)
    folder = output or (source / "report" if source.is_dir() else source.with_name(f"{source.stem}-report"))
    if form in FIGURES:
        for file in write_figures(figures_of(record), folder, form):
            show_path("Figure", file)
        return
    if form is not None:
        for table in record_tables(record).values():
            typer.echo(getattr(report, FORMATS[form])(table))
        return
    page = write_report(record, folder)
    if isinstance(record, StudyRecord):
        show_tables(record)
        show_notes(record)
    show_path("\nReport", page)
    if isinstance(record, StudyRecord):
        show_failures(record)
