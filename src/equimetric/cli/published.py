"""`equimetric published`."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from equimetric.cli.catalogue import complete
from equimetric.cli.command import LOOK_UP, command
from equimetric.cli.console import console, show_path
from equimetric.errors import EquimetricError

if TYPE_CHECKING:
    from equimetric.report import PlainTable

__all__ = ["published_command"]

Format = Literal["table", "md", "csv", "tex", "json"]
PAPERS = ("reality-check", "unbiased", "unified-view", "tcm")


@command(
    "published",
    panel=LOOK_UP,
    order=4,
    examples="""
    equimetric published
    equimetric published --paper reality-check --dataset cub --dim 128
    equimetric published --method multi_similarity --metric recall@1 --format csv
    equimetric published --hyperparameters --dataset cub
    equimetric published --improvement --figure papers.png
    """,
)
def published_command(
    paper: Annotated[
        str | None, typer.Option(help=f"Of this paper: {', '.join(PAPERS)}.", autocompletion=complete(lambda: PAPERS))
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="On this data set: cub, cars, sop …")] = None,
    method: Annotated[str | None, typer.Option(help="Of this method, by our name or the paper's.")] = None,
    metric: Annotated[str | None, typer.Option(help="In this metric, by our name or the paper's.")] = None,
    backbone: Annotated[str | None, typer.Option(help="With this backbone.")] = None,
    dim: Annotated[int | None, typer.Option(help="With embeddings of this dimension.")] = None,
    hyperparameters: Annotated[
        bool, typer.Option("--hyperparameters", help="List the Reality Check's search ranges and optima instead.")
    ] = False,
    improvement: Annotated[
        bool,
        typer.Option(
            "--improvement",
            help="Papers versus reality: accuracy over the years, and over contrastive and triplet.",
        ),
    ] = False,
    reality: Annotated[
        Path | None, typer.Option(help="CSV of your own table, for --improvement: method, dataset, value, and year.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw --improvement into this file, .png, .pdf or .svg.")] = None,
    output: Annotated[
        Format, typer.Option("--format", help="A table for the terminal or for a page; csv and json have all fields.")
    ] = "table",
) -> None:
    """List results that papers have published, as tables of the papers or as data.

    Without options: what there is. A number with (?) is doubtful, and the line below the table says why. --improvement
    compares what papers claim over contrastive and triplet loss with the Reality Check's own table, or with yours.
    """
    from equimetric import published, report

    filters = published.ResultFilters(
        paper=paper, dataset=dataset, method=method, metric=metric, backbone=backbone, dim=dim
    )
    active_filters = [name for name, value in filters.items() if value is not None]
    if (figure or reality) and not improvement:
        raise EquimetricError("--figure and --reality belong to --improvement; add it")
    if improvement:
        check_filters(active_filters, ("metric",), "--improvement")
        if metric and reality:
            raise EquimetricError(
                "--metric chooses a column of the Reality Check's table, not of --reality; leave one out"
            )
        improvements = published.compare_improvements(reality, metric=metric or "P@1")
        accuracies = published.compare_accuracies(reality, metric=metric or "P@1")
        tables = [
            report.accuracy_table(accuracies),
            *(report.improvement_table(improvements, base) for base in published.BASES),
            report.trend_table(improvements),
        ]
        show_tables(tables, report.improvement_records(improvements), output)
        if figure:
            report.draw_improvements(improvements, figure, accuracies)
            if output == "table":
                show_path("Figure", figure)
    elif hyperparameters:
        check_filters(active_filters, ("dataset", "method"), "--hyperparameters")
        tuned = published.select_hyperparameters(dataset=dataset, method=method)
        show_tables([report.hyperparameter_table(tuned)], report.hyperparameter_records(tuned), output)
    else:
        results = published.select_results(**filters)
        if not results:
            raise EquimetricError("no paper has such a result; leave one of the options out")
        tables = report.printed_tables(results) if active_filters else [report.overview_table(results)]
        show_tables(tables, report.result_records(results), output)


def check_filters(names: Iterable[str], allowed: Collection[str], option: str) -> None:
    """Raise an error for a filter that has no meaning here."""
    for name in names:
        if name not in allowed:
            raise EquimetricError(f"--{name} has no meaning beside {option}, which takes --{' and --'.join(allowed)}")


def show_tables(tables: "Sequence[PlainTable]", records: "PlainTable", output: Format) -> None:
    """Tables for readers, or all fields for programs."""
    from equimetric.report import print_table, to_csv, to_json, to_latex, to_markdown

    if output == "table":
        for table in tables:
            print_table(table, console)
    elif output in ("csv", "json"):
        typer.echo((to_csv if output == "csv" else to_json)(records), nl=False)
    else:
        typer.echo("\n".join(map(to_latex if output == "tex" else to_markdown, tables)), nl=False)
