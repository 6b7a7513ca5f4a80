"""`equimetric identify`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from equimetric.cli.command import EVALUATE, OUT, command
from equimetric.cli.console import show, show_path
from equimetric.cli.embeddings import (
    CohortOptions,
    EmbeddingSource,
    load_embeddings,
    pool_embeddings,
    require_run_for_part,
)
from equimetric.cli.figures import require_figure_folder, save_figures
from equimetric.cli.options import CohortForm, CohortSource, CohortStrength, EmbeddingsPath, LabelsFile, RunPart
from equimetric.errors import EquimetricError

__all__ = ["identify_command"]


@command(
    "identify",
    panel=EVALUATE,
    order=3,
    examples="""
    equimetric identify space.npz --fpir 1e-2,1e-1
    equimetric identify space.npz --by mean --enrolled 3 --plots figures
    equimetric identify runs/single/my-run --fpir 1e-2 --out identify.json
    equimetric identify space.npz --cohort other_classes.npz
    """,
)
def identify_command(
    source: EmbeddingsPath,
    fpir: Annotated[
        str, typer.Option("--fpir", help="Target false positive identification rates, separated by commas.")
    ] = "1e-3,1e-2,1e-1",
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="How a query gets its identity: nearest item (item), class mean (mean), or majority of the k nearest "
            "(nearest).",
        ),
    ] = "item",
    k: Annotated[int, typer.Option("--k", help="k of --by nearest.")] = 5,
    enrolled: Annotated[
        int | None, typer.Option("--enrolled", help="Images of each identity in the gallery; by default all.")
    ] = None,
    strangers: Annotated[
        float | None,
        typer.Option(
            "--strangers",
            help="Share of the classes left out of the gallery; by default half, or the queries without gallery items.",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", help="Number of random choices of strangers and enrolled images.")
    ] = 10,
    sizes: Annotated[
        str | None,
        typer.Option("--sizes", help="Numbers of identities for the curve over gallery sizes, separated by commas."),
    ] = None,
    extrapolate: Annotated[
        str | None,
        typer.Option("--extrapolate", help="Numbers of identities to extrapolate the curve to, marked as such."),
    ] = None,
    labels: LabelsFile = None,
    part: RunPart = "test",
    geometry: Annotated[
        str | None, typer.Option("--geometry", help="cosine, euclidean, dot, …; by default cosine, or that of the run.")
    ] = None,
    cohort: CohortSource = None,
    cohort_strength: CohortStrength = None,
    cohort_form: CohortForm = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random choices.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(*OUT, help="Calibrate the threshold of one --fpir and write its certificate here."),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Write figures to this folder: FNIR over FPIR, gallery sizes.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure 1:N identification with unknown identities (strangers).

    A gallery holds images of known identities. A query with a mate in it should be identified; a stranger should match
    nothing. FPIR is the share of strangers for whom anything is accepted, FNIR the share of mated queries whose own
    identity is not the accepted best. Whole classes are left out of the gallery as strangers, several times; a query is
    never in the gallery it is searched in.

    FPIR grows with the gallery: the curve over gallery sizes shows how fast, at the threshold of the middle --fpir,
    beside what independent identities would give. With --out the threshold is calibrated and measured on strangers it
    was not fitted to. With a cohort, thresholds of rates are negated scores, the one of a certificate is a score.
    """
    from equimetric.evaluation.identification import evaluate_identification, gallery_size_curve

    require_figure_folder(plots)
    require_run_for_part(part, source)
    cohort_options = CohortOptions(cohort, cohort_strength, cohort_form)
    embeddings = load_embeddings(source, labels, part, cohort=cohort_options, command="identify")
    rates = sorted(read_numbers(fpir, "--fpir", float))
    options: dict[str, Any] = {
        **{"by": by, "k": k, "enrolled": enrolled, "strangers": strangers, "repeats": repeats, "seed": seed},
        **{"geometry": geometry or embeddings.geometry, "cohort": embeddings.cohort, "progress": True},
    }
    certificate = None
    if out is not None:
        certificate = calibrate_rate(embeddings, source, rates, options)
        certificate.save(out)
    result = evaluate_identification(**embeddings.arrays, fpir=rates, **options)
    curve = gallery_size_curve(
        **embeddings.arrays,
        threshold=result.points[len(rates) // 2].threshold,
        sizes=None if sizes is None else read_numbers(sizes, "--sizes", int),
        extrapolate=() if extrapolate is None else read_numbers(extrapolate, "--extrapolate", int),
        **options,
    )
    drawings = [("identification", result.plot), ("gallery_sizes", curve.plot)]
    files = [] if plots is None else save_figures(plots, drawings)
    if as_json:
        document = {**result.to_dict(), "gallery_sizes": curve.to_dict()}
        typer.echo(json.dumps(document | ({} if certificate is None else {"certificate": certificate.to_dict()})))
        return
    show("\n".join([repr(result), repr(curve), *([] if certificate is None else [str(certificate)])]))
    for file in files:
        show_path("figure", file)
    if out is not None:
        show_path("certificate", out)


def calibrate_rate(embeddings: EmbeddingSource, source: Path, rates: list[float], options: dict[str, Any]) -> Any:
    """The certificate of a single rate, from one set of embeddings."""
    from equimetric.calibration.identification import calibrate_identification

    if len(rates) != 1:
        raise EquimetricError("a certificate is for one rate; give --out with a single --fpir, such as --fpir 1e-2")
    explicit = {name: value for name, value in options.items() if value is not None}
    model: dict[str, Any] = {name: embeddings.origin.get(name) for name in ("model", "preprocessing")}
    return calibrate_identification(**pool_embeddings(embeddings, source), fpir=rates[0], **model, **explicit)


def read_numbers(text: str, option: str, kind: type) -> list[Any]:
    """'1e-2, 1e-1' → [0.01, 0.1]."""
    try:
        numbers = [kind(item) for item in text.split(",") if item.strip()]
    except ValueError:
        numbers = []
    if not numbers:
        raise EquimetricError(f"{option} takes numbers separated by commas, not {text!r}")
    return numbers
