"""Where `evaluate` and `calibrate` get their embeddings: a file, or the test classes of a run."""

from pathlib import Path
from typing import Any

import typer

__all__ = ["EMBEDDINGS_SOURCE", "LABELS_FILE", "load_embeddings"]

EMBEDDINGS_SOURCE = typer.Argument(
    help="An .npz, .parquet or .npy file of embeddings and labels, or the folder of a run."
)
LABELS_FILE = typer.Option("--labels", help="The .csv with the labels of an .npy file; by default the one beside it.")


def load_embeddings(source: Path, labels: Path | None) -> dict[str, Any]:
    """The arguments of `evaluate`: the arrays of a file, or the test classes of a run."""
    if not source.is_dir():
        from equimetric.evaluation.files import read_embeddings

        return dict(read_embeddings(source, labels))
    from equimetric.training import load_trained
    from equimetric.training.loop import load_split

    trained = load_trained(source)
    dataset, split = load_split(trained.config.data)
    test = dataset.subset(split.test)
    return {"embeddings": trained.embed(test.images), "labels": test.labels}
