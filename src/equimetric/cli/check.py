"""`equimetric check`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.command import EVALUATE, command
from equimetric.cli.console import show
from equimetric.cli.embeddings import CohortOptions, load_embeddings
from equimetric.cli.options import RunPart
from equimetric.errors import EquimetricError

if TYPE_CHECKING:
    from equimetric.calibration import Certificate
    from equimetric.evaluation import Cohort

__all__ = ["check_certificate_command"]

EXIT_SHIFTED = 1
"""Exit code where the threshold should be calibrated again."""


@command(
    "check",
    panel=EVALUATE,
    order=3,
    examples="""
    equimetric check threshold.json new.npz
    equimetric check threshold.json new.npy --classes 40
    """,
)
def check_certificate_command(
    certificate: Annotated[Path, typer.Argument(help="A certificate that `equimetric calibrate --out` wrote.")],
    source: Annotated[
        Path,
        typer.Argument(
            help="New embeddings: an .npz, .safetensors, .parquet or .npy file, with labels or without, or the folder "
            "of a run."
        ),
    ],
    part: RunPart = "test",
    cohort: Annotated[
        str | None,
        typer.Option(
            "--cohort",
            help="The certificate's cohort: its file; for a run train, validation or both, where not that of the run.",
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(
            "--classes", min=1, help="For images without labels: the least number of classes that they are of."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Check whether new embeddings resemble those that a threshold was calibrated on, with labels or without.

    The mean embedding and the distances of pairs are compared with those in the certificate, and with how much these
    vary by chance from class to class. Images per class do not matter. The answer is 'as certified', 'shifted:
    recalibrate' (exit code 1) or 'too few to say', with the size of the change, the false accept rate to expect, and
    the smallest shift that would have been seen. Labels are used where the file or the run has them. Images without
    labels may be of few classes, which hides shifts; --classes says that they are of more. Embeddings of another
    dimension, or of a run with another model, are an error.
    """
    from equimetric.calibration import Certificate
    from equimetric.evaluation.files import read_labels, read_vectors

    loaded = Certificate.load(certificate)
    if cohort is not None and loaded.cohort is None:
        raise EquimetricError("this certificate is of distances, which no cohort normalises; leave --cohort out")
    if source.is_dir():
        embeddings = load_embeddings(source, None, part, cohort=options_of_certificate(loaded, cohort), command="check")
        model, preprocessing = embeddings.origin["model"], embeddings.origin["preprocessing"]
        options: dict[str, Any] = {"model": model, "preprocessing": preprocessing, "cohort": embeddings.cohort}
        require_cohort(loaded, embeddings.cohort)
        labels = None if classes is not None else embeddings.pooled["labels"]
        result = loaded.check(embeddings.pooled["embeddings"], labels, classes=classes, **options)
    else:
        from_file = cohort_of_certificate(loaded, cohort)
        require_cohort(loaded, from_file)
        labels = read_labels(source) if classes is None else None
        result = loaded.check(read_vectors(source), labels, classes=classes, cohort=from_file)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
    else:
        show(repr(result))
    if result.shifted:
        raise typer.Exit(EXIT_SHIFTED)


def require_cohort(certificate: "Certificate", cohort: "Cohort | None") -> None:
    """Raise an error that names the option, where a cohort is needed."""
    if certificate.cohort is not None and cohort is None:
        raise EquimetricError(
            "this certificate is of scores that a cohort normalises; give the same cohort by --cohort: its file, "
            "or for a run train, validation or both"
        )


def options_of_certificate(certificate: "Certificate", part: str | None) -> CohortOptions:
    """A part of a run's classes as cohort, used as the certificate says; the run's own where none is given."""
    settings = certificate.cohort
    if part is None or settings is None:
        return CohortOptions(part)
    return CohortOptions(part, settings.strength, settings.form)


def cohort_of_certificate(certificate: "Certificate", file: str | None) -> "Cohort | None":
    """The cohort in a file, used as the certificate says."""
    from equimetric.evaluation import Cohort
    from equimetric.evaluation.files import read_cohort

    settings = certificate.cohort
    arrays = None if file is None or settings is None else read_cohort(file)
    if arrays is None or settings is None:
        return None
    return Cohort(**arrays, form=settings.form, strength=settings.strength, nearest=settings.nearest)
