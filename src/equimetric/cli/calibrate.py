"""`equimetric calibrate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.command import EVALUATE, OUT, command
from equimetric.cli.console import show, show_path
from equimetric.cli.embeddings import (
    CohortOptions,
    load_embeddings,
    pool_embeddings,
    require_run_for_part,
)
from equimetric.cli.figures import require_figure_folder, save_figures
from equimetric.cli.options import CohortForm, CohortSource, CohortStrength, EmbeddingsPath, LabelsFile, RunPart
from equimetric.errors import EquimetricError, unknown_name

if TYPE_CHECKING:
    from equimetric.calibration import Calibration, IdentificationCertificate

__all__ = ["calibrate_command"]

PLOTS = ("classes", "distances")
TASKS = ("verification", "identification")


@command(
    "calibrate",
    panel=EVALUATE,
    order=2,
    examples="""
    equimetric calibrate space.npz --far 1e-3 --out threshold.json
    equimetric calibrate space.npz --frr 0.05
    equimetric calibrate space.npz --cost-accept 10 --cost-reject 1 --prior 0.01
    equimetric calibrate runs/single/my-run --plots figures
    equimetric calibrate space.npz --task identification --fpir 1e-2
    equimetric calibrate space.npz --trials list.csv --far 1e-2
    """,
)
def calibrate_command(
    source: EmbeddingsPath,
    task: Annotated[
        str,
        typer.Option(
            "--task",
            help="verification (pairs) or identification (queries against a gallery, some of unknown identity).",
        ),
    ] = "verification",
    far: Annotated[float | None, typer.Option("--far", help="Target false accept rate; by default 1e-3.")] = None,
    frr: Annotated[float | None, typer.Option("--frr", help="Target false reject rate, instead of --far.")] = None,
    cost_accept: Annotated[
        float | None,
        typer.Option("--cost-accept", help="Cost of a false accept, to minimise the expected cost instead."),
    ] = None,
    cost_reject: Annotated[
        float | None, typer.Option("--cost-reject", help="Cost of a false reject; goes with --cost-accept.")
    ] = None,
    prior: Annotated[
        float | None, typer.Option("--prior", help="Probability that a pair is of one class; goes with the costs.")
    ] = None,
    fpir: Annotated[
        float | None,
        typer.Option(
            "--fpir", help="Target false positive identification rate of --task identification; by default 1e-2."
        ),
    ] = None,
    trials: Annotated[
        Path | None,
        typer.Option("--trials", help="Calibrate on exactly the pairs of this list: see `equimetric evaluate --help`."),
    ] = None,
    out: Annotated[Path | None, typer.Option(*OUT, help="Write the certificate to this JSON file.")] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Write figures to this folder: rates of classes, distances.")
    ] = None,
    labels: LabelsFile = None,
    part: RunPart = "test",
    geometry: Annotated[
        str | None, typer.Option("--geometry", help="cosine or euclidean; by default cosine, or that of the run.")
    ] = None,
    cohort: CohortSource = None,
    cohort_strength: CohortStrength = None,
    cohort_form: CohortForm = None,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds", help="Number of folds of the classes, each held out once; by default 2, for identification 4."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the folds and of the resampling.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """Find the distance threshold for a false accept rate, and report how well it holds for each class.

    A false reject rate or the least cost can be the target, too. Rates are measured on held-out classes, which the
    threshold was not fitted to. Classes that surely exceed the target rate are listed. The certificate
    holds the threshold and its rule, its interval, all rates, bounds for new classes, and what it is valid for: a
    fingerprint of the data, and of a run the model and the preprocessing. `equimetric check` compares new embeddings
    with it. A run is calibrated on all images of its test classes, queries and gallery together.

    With --task identification the threshold is that of a false positive identification rate, by the nearest item, with
    half of the classes as strangers; `equimetric identify` has other rules, and the rates and figures.
    """
    from equimetric.calibration import Certificate, calibrate
    from equimetric.cli.identify import calibrate_rate
    from equimetric.cli.trials import show_trial_threshold

    costs = {"--cost-accept": cost_accept, "--cost-reject": cost_reject, "--prior": prior}
    check_task(task, {"--far": far, "--frr": frr, **costs, "--plots": plots}, fpir)
    require_figure_folder(plots)
    require_run_for_part(part, source)
    cost = join_costs(cost_accept, cost_reject, prior)
    cohort_options = CohortOptions(cohort, cohort_strength, cohort_form)
    embeddings = load_embeddings(source, labels, part, cohort=cohort_options, command="calibrate")
    if trials is not None:
        check_trials({"--frr": frr, **costs, "--fpir": fpir, "--plots": plots, "--out": out, "--folds": folds}, task)
        show_trial_threshold(embeddings, source, labels, trials, 1e-3 if far is None else far, geometry, as_json)
        return
    pooled = pool_embeddings(embeddings, source)
    compared_by = geometry or embeddings.geometry
    if geometry is None and compared_by not in ("cosine", "euclidean"):
        raise EquimetricError(
            f"embeddings compared by {compared_by} have no threshold to calibrate; give --geometry cosine or euclidean"
        )
    options: dict[str, Any] = {"geometry": compared_by, "cohort": embeddings.cohort, "seed": seed, "progress": True}
    if folds is not None:
        options["folds"] = folds
    certificate: Certificate | IdentificationCertificate
    figures: list[Path] = []
    if task == "identification":
        certificate = calibrate_rate(embeddings, source, [1e-2 if fpir is None else fpir], options)
    else:
        result = calibrate(**pooled, **embeddings.origin, far=far, frr=frr, cost=cost, **options)
        certificate = Certificate.from_calibration(result)
        figures = [] if plots is None else write_plots(result, plots)
    if out is not None:
        certificate.save(out)
    if as_json:
        typer.echo(json.dumps(certificate.to_dict()))
        return
    show(str(certificate))
    if out is not None:
        show_path("certificate", out)
    for figure in figures:
        show_path("figure", figure)


def check_task(task: str, verification_options: dict[str, Any], fpir: float | None) -> None:
    """Raise an error for an unknown task, or for an option of the other task."""
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    if task == "verification" and fpir is not None:
        raise EquimetricError("--fpir is a rate of identification; give --task identification, or --far")
    explicit = [name for name, value in verification_options.items() if value is not None]
    if task == "identification" and explicit:
        raise EquimetricError(
            f"{explicit[0]} is for verification; identification has --fpir, and its figures are those of "
            "`equimetric identify --plots`"
        )


def check_trials(options: dict[str, Any], task: str) -> None:
    """Raise an error for options that cannot be combined with a trial list."""
    explicit = [name for name, value in options.items() if value is not None]
    if task != "verification" or explicit:
        raise EquimetricError(
            "--trials calibrates a false accept rate on the listed pairs; leave "
            f"{explicit[0] if explicit else '--task'} out"
        )


def join_costs(accept: float | None, reject: float | None, prior: float | None) -> tuple[float, float, float] | None:
    """The three numbers of a cost; None where none is given."""
    if accept is None and reject is None and prior is None:
        return None
    if accept is None or reject is None or prior is None:
        raise EquimetricError("the least cost needs all three of --cost-accept, --cost-reject and --prior")
    return accept, reject, prior


def write_plots(result: "Calibration", folder: Path) -> list[Path]:
    """Write each figure as a PNG file."""
    return save_figures(folder, [(f"calibration_{name}", getattr(result, f"plot_{name}")) for name in PLOTS])
