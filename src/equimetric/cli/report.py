"""`equimetric report`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.command import OUT, TRAIN, command
from equimetric.cli.console import progress_bar, show, show_failures, show_notes, show_page, show_path, show_tables
from equimetric.cli.report_source import find_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from equimetric.studies.retraining import RetrainedRow

__all__ = ["report_command"]


FORMATS = ("md", "csv", "tex", "json")
FIGURES = ("svg", "png", "pdf")


@command(
    "report",
    panel=TRAIN,
    order=4,
    overrides=True,
    examples="""
    equimetric report runs/demo
    equimetric report runs/demo --format tex > table.tex
    equimetric report runs/demo --format pdf --out figures
    equimetric report runs/single/my-run
    equimetric report embeddings.npz --out my-report
    equimetric report results/learners/store --retrain runs/again --out page
    """,
)
def report_command(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(help="Folder of a study or of a run, or a file of embeddings and labels, such as .npz.")
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"Print the tables instead ({', '.join(FORMATS)}; files with --out), or write the figures as files "
            f"({', '.join(FIGURES)}).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            *OUT, help="Folder of the page, the figures or the tables; by default in the study, beside a file."
        ),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="The .csv or .npy with the labels of an .npy file.")] = None,
    retrain: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Retrain the first run of every row into this folder, for a study whose runs were deleted.",
        ),
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Retrain only this row; may be given several times.")
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Show images of the data in the page.")] = True,
) -> None:
    """Write the report of a study, a run or embeddings: one HTML page, and its tables as md, csv and tex.

    The page holds all its scripts, figures and images, and opens without a network. Figures need the extra `report`;
    without it the page has its tables and words.

    A study whose run folders were deleted, such as one that is kept as its index, has no thresholds, neighbours or
    maps to show. With --retrain the first run of every row is trained again, its scores are compared with those of the
    index, and the page shows its results; the study itself is not changed. If its data have moved, give their location
    by --data.options.file PATH, or by the option of its data set.
    """
    from equimetric.configuration import parse_overrides
    from equimetric.errors import EquimetricError
    from equimetric.report import StudyRecord, figures_of, record_tables, write_figures, write_report, write_tables
    from equimetric.report.tables import TABLE_FORMATS
    from equimetric.studies.report_records import load_record
    from equimetric.studies.retraining import describe_retrained
    from equimetric.studies.store import is_study

    if form is not None and form not in (*FORMATS, *FIGURES):
        raise EquimetricError(
            f"unknown format {form!r}; tables are written as {', '.join(FORMATS)}, figures as {', '.join(FIGURES)}"
        )
    data_options = parse_overrides(context.args)
    named, source = source, find_source(source)
    if row and retrain is None:
        raise EquimetricError("--row says which rows are trained again; give --retrain FOLDER with it")
    retrained = [] if retrain is None else retrain_with_progress(source, retrain, data_options, row or [])
    record = load_record(source, labels, retrained_folder=retrain, data_options=data_options, pictures=pictures)
    if isinstance(record, StudyRecord) and retrained:
        record = replace(record, statement=(*record.statement, describe_retrained(retrained, len(record.methods))))
    folder = output or (named / "report" if named.is_dir() else named.with_name(f"{named.stem}-report"))
    if form in FIGURES:
        for file in write_figures(figures_of(record), folder, form):
            show_path("Figure", file)
        return
    if form is not None and output is not None:
        for file in write_tables(record, output, [form]):
            show_path("Table", file)
        return
    if form is not None:
        for table in record_tables(record).values():
            typer.echo(TABLE_FORMATS[form](table))
        return
    page = write_report(record, folder, study=source if is_study(source) else None)
    if isinstance(record, StudyRecord):
        show_tables(record)
        show_notes(record)
    show_page(page)
    if isinstance(record, StudyRecord):
        show_failures(record)


def retrain_with_progress(
    source: Path, runs: Path, data_options: "Mapping[str, Any]", only: list[str]
) -> "list[RetrainedRow]":
    """Retrain the first run of rows of a study with a progress bar, and print how its scores compare."""
    from equimetric.studies.retraining import retrain_rows

    rows = []
    with progress_bar() as bar:
        task = bar.add_task("", total=None, figures="")

        def advance(row: str, step: int, steps: int) -> None:
            bar.update(task, description=row, completed=step, total=steps)

        for retrained_row in retrain_rows(source, runs, data_options, advance, only=only):
            show(str(retrained_row))
            rows.append(retrained_row)
    return rows
