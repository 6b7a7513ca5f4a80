"""The certificate of an exported model: given or calibrated, then bound to model, preprocessing and arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from equimetric.calibration import Certificate, calibrate, calibrate_identification
from equimetric.deployment.embedder import AnyCertificate
from equimetric.deployment.folder import read_any_certificate
from equimetric.deployment.preprocessing import Preprocessing
from equimetric.deployment.runtimes import Arithmetic
from equimetric.errors import EquimetricError, unknown_name
from equimetric.runs.configuration import RunConfig
from equimetric.runs.evaluation import LabelledEmbeddings
from equimetric.runs.origin import describe_preprocessing, weights_sha256

__all__ = ["ThresholdTarget", "bind_certificate", "calibrate_embeddings", "load_run_certificate"]

TASKS = ("verification", "identification")


@dataclass(frozen=True)
class ThresholdTarget:
    """Calibration target: pairs at a false accept rate, or identification at a false positive identification rate."""

    task: Literal["verification", "identification"] = "verification"
    far: float = 1e-3
    fpir: float = 1e-2

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise unknown_name("task", self.task, TASKS)


def calibrate_embeddings(samples: LabelledEmbeddings, config: RunConfig, target: ThresholdTarget) -> AnyCertificate:
    """The certificate of labelled embeddings, by the geometry and the cohort of their run."""
    geometry: Any = config.evaluation.compared_by()
    if geometry not in ("cosine", "euclidean"):
        raise EquimetricError(
            f"embeddings compared by {geometry} have no threshold to calibrate; export without a certificate"
        )
    if target.task == "identification":
        return calibrate_identification(
            samples.embeddings, samples.labels, target.fpir, geometry=geometry, cohort=samples.cohort, progress=True
        )
    calibrated = calibrate(
        samples.embeddings,
        samples.labels,
        target.far,
        geometry=geometry,
        cohort=samples.cohort,
        class_names=samples.class_names,
        progress=True,
    )
    return Certificate.from_calibration(calibrated)


def load_run_certificate(file: Path, run: Path, samples: LabelledEmbeddings) -> AnyCertificate:
    """A certificate that `equimetric calibrate RUN --out` wrote; raises an error where it is not of this run."""
    certificate = read_any_certificate(file)
    if certificate.model is None:
        raise EquimetricError(
            f"the certificate {str(file)!r} does not say which model it is for; write one with: equimetric calibrate "
            f"{run} --out {file}"
        )
    certificate.check_compatible(
        model=weights_sha256(run),
        preprocessing=describe_preprocessing(run),
        dimension=samples.embeddings.shape[1],
    )
    if certificate.cohort is not None:
        certificate.cohort.require(samples.cohort)
    elif samples.cohort is not None:
        raise EquimetricError(
            f"the certificate {str(file)!r} is of distances, and this run normalises by a cohort; give --cohort none"
        )
    return certificate


def bind_certificate(
    certificate: AnyCertificate, *, model: str, preprocessing: Preprocessing, arithmetic: Arithmetic
) -> AnyCertificate:
    """The same certificate for the files of an exported model, and no other."""
    return replace(certificate, model=model, preprocessing=preprocessing.description, runtime=arithmetic)
