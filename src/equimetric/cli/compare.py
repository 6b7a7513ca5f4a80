"""`equimetric compare`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from equimetric.cli.console import console, study_progress
from equimetric.configuration import parse_overrides
from equimetric.report.html import write_report
from equimetric.report.table import print_table
from equimetric.studies import compare as compare_methods

__all__ = ["compare", "run_and_report"]


def compare(
    context: typer.Context,
    study: Annotated[Path, typer.Argument(help="TOML file that describes the study.")],
    output: Annotated[Path, typer.Option(help="Folder for runs and report.")] = Path("runs"),
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Do runs that failed again.")] = False,
) -> None:
    """Compare methods fairly: equal conditions, several seeds, intervals; resumable.

    Any key of the file can be overridden: --training.steps 200 --seeds "[0, 1]". Example of a study:

        name = "my-study"

        seeds = [0, 1, 2]

        training.steps = 600

        methods.contrastive = {}

        methods.multi_similarity.options = { alpha = 2.0 }
    """
    run_and_report(study, output, parse_overrides(context.args), retry_failed=retry_failed)


def run_and_report(study: Path, output: Path, overrides: Mapping[str, Any], *, retry_failed: bool) -> None:
    """Do what is missing, print the table, write the report."""
    with study_progress() as watch:
        result = compare_methods(study, output=output, overrides=overrides, retry_failed=retry_failed, watch=watch)
    page = write_report(result.record, result.folder / "report")
    print_table(result.table, console)
    for sentence in result.record.statement:
        console.print(sentence, style="dim", highlight=False)
    console.print(f"\nReport: {page}", highlight=False, soft_wrap=True)
