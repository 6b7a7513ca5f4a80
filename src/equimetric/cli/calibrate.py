"""`equimetric calibrate`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from equimetric.cli.command import EVALUATE, command
from equimetric.cli.console import show, show_path
from equimetric.cli.embeddings import EMBEDDINGS_SOURCE, LABELS_FILE, RUN_PART, load_embeddings
from equimetric.errors import EquimetricError

__all__ = ["calibrate_command"]


@command(
    "calibrate",
    panel=EVALUATE,
    order=2,
    examples="""
    equimetric calibrate space.npz --far 1e-3 --out threshold.json
    equimetric calibrate runs/single/my-run
    """,
)
def calibrate_command(
    source: Annotated[Path, EMBEDDINGS_SOURCE],
    far: Annotated[float, typer.Option("--far", help="The target false accept rate.")] = 1e-3,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the certificate to this JSON file.")] = None,
    labels: Annotated[Path | None, LABELS_FILE] = None,
    part: Annotated[str, RUN_PART] = "test",
    geometry: Annotated[
        str | None, typer.Option("--geometry", help="cosine or euclidean; by default cosine, or that of the run.")
    ] = None,
    folds: Annotated[int, typer.Option("--folds", help="Number of folds of the classes, each held out once.")] = 2,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the folds and of the resampling.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate.")] = False,
) -> None:
    """Find the distance threshold for a false accept rate, and report how well it holds for each class.

    Rates are measured on held-out classes, which the threshold was not fitted to. Classes that exceed the target rate
    by more than noise are listed. The certificate holds the threshold, its interval, all rates and a fingerprint of
    the data. A run is calibrated on all images of its test classes, queries and gallery together.
    """
    from equimetric.calibration import calibrate

    found = load_embeddings(source, labels, part)
    if not found.pooled:
        raise EquimetricError(
            f"{str(source)!r} has a separate gallery; a threshold is calibrated on one set of labelled embeddings"
        )
    if geometry is None and found.cohort is not None:
        raise EquimetricError(
            "this run normalises similarities by a cohort; give --geometry cosine to calibrate its plain distances"
        )
    compared_by = geometry or found.geometry
    if geometry is None and compared_by not in ("cosine", "euclidean"):
        raise EquimetricError(
            f"embeddings compared by {compared_by} have no threshold to calibrate; give --geometry cosine or euclidean"
        )
    options: dict[str, Any] = {"far": far, "folds": folds, "seed": seed, "geometry": compared_by, "progress": True}
    result = calibrate(**found.pooled, **options)
    if out is not None:
        result.save(out)
    if as_json:
        typer.echo(json.dumps(result.certificate()))
    else:
        show(repr(result))
        if out is not None:
            show_path("certificate", out)
