"""`equimetric calibrate`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from equimetric.calibration import calibrate as calibrate_embeddings
from equimetric.cli.console import console
from equimetric.cli.evaluate import embedding_arrays
from equimetric.errors import EquimetricError

__all__ = ["calibrate"]


def calibrate(
    source: Annotated[
        Path,
        typer.Argument(help="An .npz, .parquet or .npy file of embeddings and labels, or the folder of a run."),
    ],
    far: Annotated[float, typer.Option("--far", help="The false accept rate that is wanted.")] = 1e-3,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the certificate, a JSON file, here.")] = None,
    labels: Annotated[
        Path | None, typer.Option("--labels", help="The .csv with the labels of an .npy file; default: beside it.")
    ] = None,
    geometry: Annotated[str, typer.Option("--geometry", help="cosine or euclidean.")] = "cosine",
    folds: Annotated[int, typer.Option("--folds", help="Parts of the classes, each held out once.")] = 2,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the folds and of the resampling.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate.")] = False,
) -> None:
    """Find the distance threshold of a wanted false accept rate, and say what it is worth for every class.

    The rates are those of classes held out, which had no say in the threshold; classes that break the wanted rate by
    more than noise are named. The certificate holds the threshold, its interval, all rates and the data's fingerprint.

    Example: equimetric calibrate space.npz --far 1e-3 --out threshold.json
    """
    arrays = embedding_arrays(source, labels)
    if "gallery_embeddings" in arrays:
        raise EquimetricError(
            f"{str(source)!r} has a gallery of its own; a threshold is calibrated on one set of labelled embeddings"
        )
    options: dict[str, Any] = {"far": far, "geometry": geometry, "folds": folds, "seed": seed, "progress": True}
    found = calibrate_embeddings(**arrays, **options)
    if out is not None:
        found.save(out)
    if as_json:
        typer.echo(json.dumps(found.certificate()))
    else:
        console.print(repr(found), highlight=False, markup=False, soft_wrap=True)
        if out is not None:
            console.print(f"certificate: {out}", highlight=False, markup=False, soft_wrap=True)
