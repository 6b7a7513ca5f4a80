"""`equimetric export`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from equimetric.cli.command import DEPLOY, command
from equimetric.cli.console import show, show_path
from equimetric.cli.embeddings import CohortOptions
from equimetric.cli.options import CohortForm, CohortSource, CohortStrength, Licence
from equimetric.errors import EquimetricError

__all__ = ["export_command"]


@command(
    "export",
    panel=DEPLOY,
    order=1,
    examples="""
    equimetric export runs/single/my-run model
    equimetric export runs/single/my-run model --far 1e-2 --license apache-2.0
    equimetric export runs/single/my-run model --certificate threshold.json
    equimetric export runs/single/my-run door --task identification --fpir 1e-2
    equimetric export runs/single/my-run small --int8
    """,
)
def export_command(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run; its data must be there.")],
    folder: Annotated[Path, typer.Argument(help="The folder to create.")],
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", help="A certificate of `equimetric calibrate RUN --out`, in place of a new one."),
    ] = None,
    task: Annotated[str, typer.Option("--task", help="Calibrate for verification or for identification.")] = (
        "verification"
    ),
    far: Annotated[
        float | None, typer.Option("--far", help="Target false accept rate of verification; by default 1e-3.")
    ] = None,
    fpir: Annotated[
        float | None,
        typer.Option("--fpir", help="Target false positive identification rate of identification; by default 1e-2."),
    ] = None,
    part: Annotated[
        str, typer.Option("--part", help="Classes to calibrate on and to measure: test, validation or train.")
    ] = "test",
    cohort: CohortSource = None,
    cohort_strength: CohortStrength = None,
    cohort_form: CohortForm = None,
    certified: Annotated[
        bool, typer.Option("--certified/--no-certificate", help="Whether the model has a threshold.")
    ] = True,
    int8: Annotated[
        bool, typer.Option("--int8", help="Quantise, calibrate the int8 model, and write that alone.")
    ] = False,
    onnx: Annotated[bool, typer.Option("--onnx/--no-onnx", help="Whether to write the ONNX graph.")] = True,
    licence: Licence = "unknown",
) -> None:
    """Write the model of a run to one folder: weights, ONNX graph, program, preprocessing, certificate, card, canaries.

    The graph takes uint8 images, any number at a time; scaling, head, normalisation and cohort are inside. The
    threshold is calibrated on the test classes of the run, or on those of --part, and its certificate is bound to this
    model, preprocessing and arithmetic. The folder appears whole or not at all, and is laid out as the Hugging Face hub
    expects it.
    """
    from equimetric.deployment.certification import ThresholdTarget
    from equimetric.deployment.export import export_run
    from equimetric.runs.evaluation import CohortOverride

    rate_options = {"--far": far, "--fpir": fpir}
    check_threshold(task, {name for name, value in rate_options.items() if value is not None}, certificate, certified)
    rates: dict[str, Any] = {
        name.removeprefix("--"): value for name, value in rate_options.items() if value is not None
    }
    options = CohortOptions(cohort, cohort_strength, cohort_form)
    model = export_run(
        run,
        folder,
        threshold=ThresholdTarget(task, **rates),  # type: ignore[arg-type]
        certificate=certificate,
        certified=certified,
        part=part,
        cohort=CohortOverride(options.source, **options.explicit()),
        int8=int8,
        onnx=onnx,
        licence=licence,
    )
    show(repr(model))
    if model.certificate is not None:
        show(str(model.certificate))
    show_path("model", folder)


def check_threshold(task: str, rates: set[str], certificate: Path | None, certified: bool) -> None:
    """Raise an error for options that contradict each other."""
    if not certified and (rates or certificate is not None):
        raise EquimetricError("--no-certificate leaves no use for a rate or a certificate; leave one of them out")
    if certificate is not None and rates:
        raise EquimetricError(f"the certificate has its own rate; leave {sorted(rates)[0]} out, or --certificate")
    wrong_option = "--fpir" if task == "verification" else "--far"
    if wrong_option in rates:
        raise EquimetricError(f"{wrong_option} is not a rate of {task}; give the other --task, or leave it out")
