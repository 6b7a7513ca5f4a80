"""`equimetric train`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from equimetric.cli.command import TRAIN, command
from equimetric.cli.console import format_metrics, literal, progress_bar, show, show_path
from equimetric.errors import EquimetricError
from equimetric.escaping import one_line

if TYPE_CHECKING:
    from equimetric.runs.result import RunResult

__all__ = ["train_command"]


@command(
    "train",
    panel=TRAIN,
    order=2,
    overrides=True,
    examples="""
    equimetric train run.toml --optimizer.lr 1e-3 --method margin
    equimetric train run.toml --method my_losses:gap --options.margin 0.3
    equimetric train runs/first --final all --folder final
    torchrun --nproc-per-node 4 -m equimetric train run.toml

    A configuration (run.toml):
    method = "multi_similarity_miner"
    data.name = "folder"
    data.options = { root = "my_images", size = 64 }
    training.steps = 1000
    """,
)
def train_command(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(help="TOML file that describes the run; with --final the folder of a finished run.")
    ],
    folder: Annotated[Path | None, typer.Option(help="Folder of the run; by default one below runs/single.")] = None,
    final: Annotated[
        str | None,
        typer.Option(
            "--final",
            metavar="training|all",
            help="Repeat a finished run for its best number of steps, on all its training classes (validation "
            "included), or on all classes for deployment.",
        ),
    ] = None,
) -> None:
    """Train one model and evaluate it on the test classes.

    Ctrl-C stops after the current step; the same command resumes there. Any --key value after the file overrides a key
    of it. With torchrun, several processes train one model together.
    """
    from equimetric.configuration import parse_overrides
    from equimetric.evaluation import format_score
    from equimetric.processes import is_first_process
    from equimetric.runs.configuration import RunConfig
    from equimetric.runs.plugin_config import load_with_plugins
    from equimetric.training import train
    from equimetric.training.preconditions import warn_if_not_augmented
    from equimetric.training.refit import refit_config

    overrides = parse_overrides(context.args)
    if final is None:
        run = load_with_plugins(config, RunConfig, overrides)
    elif overrides:
        raise EquimetricError(
            f"a final model repeats the configuration of its run; leave out --{next(iter(overrides))}"
        )
    else:
        run = refit_config(config, final)
    warn_if_not_augmented(run)
    with progress_bar() as progress:
        task = progress.add_task(one_line(run.method), total=run.steps, figures="", visible=is_first_process())

        def update(step: int, figures: Mapping[str, float]) -> None:
            if not figures and is_first_process():
                progress.console.print(literal(f"resumed at step {step:,} of {run.training.steps:,}"))
            progress.update(task, completed=step, figures=format_metrics(figures))

        trained = train(run, folder=folder, progress=update, profile=True)
    if not is_first_process():
        return
    if trained.metrics:
        chosen = "best validation at" if run.refit is None else "weights of"
        show(f"Test classes, none of them used in training ({chosen} step {trained.best_step}):")
        if run.evaluation.across is not None:
            show(f"  One modality searched for by the other, both ways; relevant: the same {run.evaluation.across}.")
    for name, value in trained.metrics.items():
        show(f"  {name:<14} {format_score(name, value)}")
    show_searches(trained.result)
    for note in trained.result.notes:
        show(note, wrap=True)
    show_path("Run", trained.folder)


def show_searches(result: "RunResult") -> None:
    """A table of how well one modality finds the other, for a learner of two encoders."""
    from equimetric.evaluation import format_score

    if not result.cross_modal:
        return
    names = list(result.cross_modal[0].metrics)
    searches = [f"{entry.query} → {entry.gallery}" for entry in result.cross_modal]
    width = max(map(len, ("search", *searches)))
    show(f"  {'search':<{width}}  relevant  {'  '.join(f'{name:>9}' for name in names)}")
    for entry, search in zip(result.cross_modal, searches, strict=True):
        scores = "  ".join(f"{format_score(name, entry.metrics[name]).strip():>{max(9, len(name))}}" for name in names)
        show(f"  {search:<{width}}  {entry.relevant:<8}  {scores}")
