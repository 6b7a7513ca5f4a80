"""`equimetric evaluate`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from equimetric.cli.console import console
from equimetric.evaluation import evaluate as evaluate_embeddings
from equimetric.evaluation.files import read_embeddings
from equimetric.training import load_trained
from equimetric.training.loop import load_split

__all__ = ["evaluate"]


def evaluate(
    source: Annotated[
        Path, typer.Argument(help="An .npz file with arrays 'embeddings' and 'labels', or a run folder.")
    ],
    ks: Annotated[str, typer.Option("--ks", help="The K of Recall@K, separated by commas.")] = "1,2,4,8",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge an embedding space: Recall@K, Precision@1, R-Precision and MAP@R, exact.

    Embeddings may come from anywhere; optional arrays 'gallery_embeddings' and 'gallery_labels' make queries and
    gallery separate sets. A run folder is judged on its test classes.
    """
    numbers = parse_ks(ks)
    if source.is_dir():
        trained = load_trained(source)
        dataset, split = load_split(trained.config.data)
        result = evaluate_embeddings(trained.embed(dataset.images[split.test]), dataset.labels[split.test], ks=numbers)
    else:
        result = evaluate_embeddings(**read_embeddings(source), ks=numbers)
    if as_json:
        typer.echo(json.dumps(dict(result)))
    else:
        console.print(repr(result), highlight=False)


def parse_ks(text: str) -> tuple[int, ...]:
    """'1,10,100' → (1, 10, 100)."""
    from equimetric.errors import EquimetricError

    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise EquimetricError(f"--ks takes whole numbers separated by commas, such as 1,10,100, not {text!r}") from None
