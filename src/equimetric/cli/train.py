"""`equimetric train`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.console import as_text, console, progress_bar
from equimetric.configuration import load_config, parse_overrides
from equimetric.processes import is_first_process
from equimetric.runs.configuration import RunConfig
from equimetric.training import train as train_model

__all__ = ["train"]


def train(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="TOML file that describes the run.")],
    folder: Annotated[Path | None, typer.Option(help="Folder of the run; by default one below runs/single.")] = None,
) -> None:
    """Train one model; killed or stopped, the same command goes on where it stood.

    Any key of the file can be overridden: --optimizer.lr 1e-3 --method margin. Example of a configuration:

        method = "multi_similarity_miner"

        data.name = "folder"

        data.options = { root = "my_images", size = 64 }

        training.steps = 1000

    Several processes train one model together: torchrun --nproc-per-node 4 -m equimetric train run.toml
    """
    run = load_config(config, RunConfig, parse_overrides(context.args))
    with progress_bar() as progress:
        task = progress.add_task(run.method, total=run.training.steps, figures="", visible=is_first_process())

        def show(step: int, figures: Mapping[str, float]) -> None:
            progress.update(task, completed=step, figures=as_text(figures))

        trained = train_model(run, folder=folder, progress=show)
    if not is_first_process():
        return
    console.print(f"Test classes, never seen in training (best validation at step {trained.best_step}):")
    for name, value in trained.metrics.items():
        console.print(f"  {name:<12} {100 * value:6.2f} %", highlight=False)
    console.print(f"Run: {trained.folder}", highlight=False, soft_wrap=True)
