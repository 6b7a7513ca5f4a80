"""`equimetric compare`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.command import TRAIN, command
from equimetric.cli.console import (
    build_table,
    console,
    show,
    show_error,
    show_failures,
    show_notes,
    show_page,
    show_tables,
)
from equimetric.cli.options import OutputFolder, RetryFailed
from equimetric.cli.study_progress import StudyProgress

if TYPE_CHECKING:
    from equimetric.studies.plan import StudyPlan

__all__ = ["compare_command", "run_study"]

FAILED = 1
"""Exit code where a run failed; 0 is a complete study, 2 a user's mistake."""


@command(
    "compare",
    panel=TRAIN,
    order=3,
    overrides=True,
    examples="""
    equimetric compare study.toml
    equimetric compare study.toml --dry-run
    equimetric compare study.toml --training.steps 200 --seeds "[0, 1]"

    A study (study.toml):
    name = "my-study"
    seeds = [0, 1, 2, 3, 4]
    training.steps = 600
    methods.contrastive = {}
    methods.multi_similarity.options = { alpha = 2.0 }
    """,
)
def compare_command(
    context: typer.Context,
    study: Annotated[Path, typer.Argument(help="TOML file that describes the study.")],
    output: OutputFolder = Path("runs"),
    retry_failed: RetryFailed = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time, one core each; default: workers of the study.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Execution engine: local (worker processes), serial (this process), or ray (a cluster).")
    ] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the study, say what it will do and how long it may take, and stop.")
    ] = False,
) -> None:
    """Compare methods under equal conditions, over several seeds, with intervals.

    Says first how many runs, steps and images there are and, where these are many, how long they may take. Prints the
    table and writes an HTML report. Ctrl-C stops all runs after their current step; the same command resumes
    them, and finished runs are kept. Any --key value after the file overrides a key of it.

    Exit codes: 0 all runs finished, 1 some failed (each is listed with its reason), 2 the study is not valid or cannot
    be written, 130 stopped by Ctrl-C, 143 stopped by SIGTERM.
    """
    from equimetric.configuration import parse_overrides

    overrides = parse_overrides(context.args)
    if dry_run:
        show_plan(study, output, overrides, jobs=jobs)
        return
    run_study(study, output, overrides, retry_failed=retry_failed, jobs=jobs, engine=engine)


def run_study(
    study: Path,
    output: Path,
    overrides: Mapping[str, Any],
    *,
    retry_failed: bool,
    jobs: int | None = None,
    engine: str = "local",
) -> None:
    """Execute the missing runs, print the table, write the report; failed runs are listed and give exit code 1."""
    from equimetric.report import write_report
    from equimetric.studies import compare

    with StudyProgress() as progress:

        def begin(plan: "StudyPlan") -> None:
            for sentence in describe_work(plan, jobs=jobs, always=False):
                progress.say(sentence)
            progress.begin(plan)

        result = compare(
            study,
            output=output,
            overrides=overrides,
            retry_failed=retry_failed,
            jobs=jobs,
            engine=engine,
            begin=begin,
            watch=progress.watch,
        )
    page = write_report(result.record, result.folder / "report", study=result.folder)
    show_tables(result.record)
    for sentence in result.record.statement:
        show(sentence, style="dim", wrap=True)
    show_notes(result.record)
    show_page(page)
    if result.record.failed:
        show_failures(result.record)
        show_error("to repeat failed runs, add --retry-failed to the same command")
        raise typer.Exit(FAILED)


def show_plan(study: Path, output: Path, overrides: Mapping[str, Any], *, jobs: int | None) -> None:
    """Print what a study will do, row by row, and how long it may take; nothing is written and nothing trained."""
    from equimetric.studies.comparison import prepare_plan
    from equimetric.studies.workload import count_work

    plan, _ = prepare_plan(study, output=output, overrides=overrides)
    rows = [
        (part.row.name, part.point, f"{part.runs:,}", f"{part.steps // part.runs:,}", f"{part.batch_images:,}")
        for part in count_work(plan).parts
    ]
    if rows:
        console.print(build_table(("row", "point", "runs to do", "steps of each", "images of a step"), rows))
    for key, change in plan.study.departures.items():
        show(f"differs from the protocol {plan.study.protocol} in {key}: {change}", wrap=True)
    for sentence in describe_work(plan, jobs=jobs, always=True):
        show(sentence, wrap=True)


def describe_work(plan: "StudyPlan", *, jobs: int | None, always: bool) -> list[str]:
    """How many runs, steps and images there are, and how long they may take; always, or where it is worth measuring."""
    from equimetric.studies.timing import estimate_time, is_worth_an_estimate
    from equimetric.studies.workload import count_work

    work = count_work(plan)
    if work.runs == work.ended:
        return [f"{plan.study.name}: all {work.runs:,} runs are done"] if always else []
    counted = f"{plan.study.name}: {work.sentence}"
    if not (always or is_worth_an_estimate(work)):
        return [counted]
    estimate = estimate_time(work, jobs=jobs or plan.study.workers)
    return [counted, f"this may take {estimate}"] if estimate else [counted]
