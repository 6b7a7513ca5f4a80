"""Where `evaluate` and `calibrate` get their embeddings: a file, or the classes of a run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

__all__ = ["EMBEDDINGS_SOURCE", "LABELS_FILE", "RUN_PART", "EmbeddingSource", "load_embeddings"]

EMBEDDINGS_SOURCE = typer.Argument(
    help="An .npz, .parquet or .npy file of embeddings and labels, or the folder of a run."
)
LABELS_FILE = typer.Option("--labels", help="The .csv with the labels of an .npy file; by default the one beside it.")
RUN_PART = typer.Option("--part", help="Which classes of a run: test, validation or train.")


@dataclass(frozen=True, eq=False)
class EmbeddingSource:
    """Embeddings and labels, with the metrics and geometry that belong to them.

    Attributes:
        arrays: the arguments of `evaluate`, the gallery included.
        pooled: all embeddings and labels as one set.
        metrics: the metrics that a run reports; None for a file.
        geometry: how the embeddings are compared by default.
        origin: what is known of a run, as arguments of `calibrate`: class names, model and preprocessing.
    """

    arrays: dict[str, Any]
    pooled: dict[str, Any]
    metrics: list[str] | None = None
    geometry: str = "cosine"
    origin: dict[str, Any] = field(default_factory=dict)


def load_embeddings(
    source: Path, labels: Path | None, part: str = "test", parents: str | None = None
) -> EmbeddingSource:
    """The arrays of a file, or a part of the classes of a run, exactly as its own result was computed."""
    if not source.is_dir():
        from equimetric.evaluation.files import read_embeddings

        arrays = dict(read_embeddings(source, labels, parents))
        return EmbeddingSource(arrays, {} if "gallery_embeddings" in arrays else arrays)
    from equimetric.runs.evaluation import embed_run
    from equimetric.runs.origin import describe_preprocessing, weights_sha256

    config, found = embed_run(source, part, parents=parents)
    pooled = {"embeddings": found.embeddings, "labels": found.labels}
    origin = {
        "class_names": found.class_names,
        "model": weights_sha256(source),
        "preprocessing": describe_preprocessing(source),
    }
    return EmbeddingSource(found.arrays(), pooled, config.evaluation.names(), config.evaluation.compared_by(), origin)
