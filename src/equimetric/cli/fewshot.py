"""`equimetric fewshot`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.catalogue import complete, list_methods
from equimetric.cli.command import EVALUATE, command
from equimetric.cli.console import show
from equimetric.errors import EquimetricError

__all__ = ["fewshot_command"]


@command(
    "fewshot",
    panel=EVALUATE,
    order=5,
    overrides=True,
    examples="""
    equimetric fewshot runs/single/my-run
    equimetric fewshot runs/single/my-run --shots 5 --episodes 3 --json
    equimetric fewshot runs/single/my-run --objective contrastive --neg_margin 0.5
    """,
)
def fewshot_command(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    shots: Annotated[
        str, typer.Option("--shots", help="Images of every test class to learn from, separated by commas.")
    ] = "2,5,10",
    episodes: Annotated[int, typer.Option("--episodes", help="Number of random draws of these images.")] = 10,
    objective: Annotated[
        str,
        typer.Option(
            "--objective", help="Objective that the head minimises on them.", autocompletion=complete(list_methods)
        ),
    ] = "margin",
    lr: Annotated[float, typer.Option("--lr", help="Learning rate of Adam.")] = 3e-4,
    steps: Annotated[int, typer.Option("--steps", help="Updates of the head.")] = 300,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with the metrics of every episode.")
    ] = False,
) -> None:
    """Adapt the head of a run to a few labelled images of each test class, and test it on the others.

    Labels of test images are used, so this is no zero-shot result. The images are the same for every run on these
    classes, and each adaptation starts from the weights of the run; metrics before and after it are means over
    episodes with 95 % t-intervals. Episodes that have ended are kept, so the same command continues after a stop. Any
    further --key value is an option of the objective.
    """
    from equimetric.configuration import parse_overrides
    from equimetric.progress import show_progress
    from equimetric.runs.access_log import record_test_access
    from equimetric.runs.few_shot import adapt
    from equimetric.runs.few_shot_result import Adaptation

    num_shots = parse_shots(shots)
    adaptation = Adaptation(objective, parse_overrides(context.args), lr, steps)
    with show_progress("Updates of the head", len(num_shots) * episodes * steps) as advance:
        done = 0

        def report(updates: int, total: int) -> None:  # noqa: ARG001  (known before)
            nonlocal done
            advance(updates - done)
            done = updates

        result = adapt(run, shots=num_shots, episodes=episodes, adaptation=adaptation, progress=report)
    record_test_access(run, "fewshot")
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
    else:
        show(str(result))


def parse_shots(text: str) -> list[int]:
    """'2,5' → [2, 5]."""
    try:
        return [int(value) for value in text.split(",")]
    except ValueError:
        raise EquimetricError(
            f"--shots takes whole numbers separated by commas, such as 2,5,10, not {text!r}"
        ) from None
