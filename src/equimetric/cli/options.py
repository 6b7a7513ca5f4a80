"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from equimetric.cli.command import OUT

__all__ = [
    "CohortForm",
    "CohortSource",
    "CohortStrength",
    "EmbeddingsPath",
    "GalleryPath",
    "LabelsFile",
    "Licence",
    "ModelFolder",
    "OutputFolder",
    "PathColumn",
    "RetryFailed",
    "RunPart",
    "Runtime",
]

EmbeddingsPath: TypeAlias = Annotated[
    Path,
    typer.Argument(
        help="An .npz, .safetensors, .parquet or .npy file of embeddings and labels, or the folder of a run."
    ),
]
LabelsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--labels", help="The .csv or .npy with the labels of an .npy file; by default the .csv beside it."),
]
RunPart: TypeAlias = Annotated[
    str,
    typer.Option("--part", help="Which classes of a run: test, validation or train; round1, … of its rounds."),
]
CohortSource: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cohort",
        help="Normalise similarities by other classes: a file of embeddings; for a run train, validation or both; or "
        "none.",
    ),
]
CohortStrength: TypeAlias = Annotated[
    float | None, typer.Option("--cohort-strength", help="From 0, no normalisation, to 1; by default 0.5.")
]
CohortForm: TypeAlias = Annotated[str | None, typer.Option("--cohort-form", help="mean or full; by default mean.")]

GalleryPath: TypeAlias = Annotated[Path, typer.Argument(help="A gallery that `equimetric index` wrote.")]
ModelFolder: TypeAlias = Annotated[
    Path | None, typer.Option("--model", help="The model's folder, if it has moved since the gallery was indexed.")
]
PathColumn: TypeAlias = Annotated[str, typer.Option("--column", help="The column of a table with the paths.")]
Runtime: TypeAlias = Annotated[
    str | None, typer.Option("--runtime", help="torch or onnx; by default torch, for an int8 model onnx.")
]
Licence: TypeAlias = Annotated[
    str, typer.Option("--license", help="Licence of the model for its card, such as apache-2.0.")
]

OutputFolder: TypeAlias = Annotated[Path, typer.Option(*OUT, help="Folder for runs and report.")]
RetryFailed: TypeAlias = Annotated[bool, typer.Option("--retry-failed", help="Repeat runs that failed.")]
