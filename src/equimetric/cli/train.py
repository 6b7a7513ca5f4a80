"""`equimetric train`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.command import TRAIN, command
from equimetric.cli.console import format_figures, literal, progress_bar, show, show_path
from equimetric.escaping import one_line

__all__ = ["train_command"]


@command(
    "train",
    panel=TRAIN,
    order=2,
    overrides=True,
    examples="""
    equimetric train run.toml --optimizer.lr 1e-3 --method margin
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
    config: Annotated[Path, typer.Argument(help="TOML file that describes the run.")],
    folder: Annotated[Path | None, typer.Option(help="Folder of the run; by default one below runs/single.")] = None,
) -> None:
    """Train one model and evaluate it on the test classes.

    Ctrl-C stops after the current step; the same command resumes there. Any --key value after the file overrides a key
    of it. With torchrun, several processes train one model together.
    """
    from equimetric.configuration import load_config, parse_overrides
    from equimetric.evaluation import format_score
    from equimetric.processes import is_first_process
    from equimetric.runs.configuration import RunConfig
    from equimetric.training import train

    run = load_config(config, RunConfig, parse_overrides(context.args))
    with progress_bar() as progress:
        task = progress.add_task(one_line(run.method), total=run.training.steps, figures="", visible=is_first_process())

        def update(step: int, figures: Mapping[str, float]) -> None:
            if not figures and is_first_process():
                progress.console.print(literal(f"resumed at step {step:,} of {run.training.steps:,}"))
            progress.update(task, completed=step, figures=format_figures(figures))

        trained = train(run, folder=folder, progress=update)
    if not is_first_process():
        return
    show(f"Test classes, none of them used in training (best validation at step {trained.best_step}):")
    for name, value in trained.metrics.items():
        show(f"  {name:<14} {format_score(name, value)}")
    show_path("Run", trained.folder)
