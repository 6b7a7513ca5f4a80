"""The certificates that a gallery was made under: one threshold, or one for each task."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from equimetric.calibration.certificate import Certificate
from equimetric.calibration.identification import IdentificationCertificate
from equimetric.errors import EquimetricError

__all__ = ["KINDS", "AnyCertificate", "check_certificates", "load_certificates", "require_same"]

AnyCertificate = Certificate | IdentificationCertificate
KINDS: dict[str, type[Certificate] | type[IdentificationCertificate]] = {
    "verification": Certificate,
    "identification": IdentificationCertificate,
}
COMMON_FIELDS = ("dimension", "geometry", "model", "preprocessing", "cohort")
"""Fields that all certificates of a gallery share."""


def check_certificates(certificate: AnyCertificate | Iterable[AnyCertificate]) -> tuple[AnyCertificate, ...]:
    """The certificates of a new gallery: at least one, at most one for each task, all for the same vectors."""
    certificates = (
        (certificate,) if isinstance(certificate, Certificate | IdentificationCertificate) else tuple(certificate)
    )
    invalid = next(
        (item for item in certificates if not isinstance(item, Certificate | IdentificationCertificate)), None
    )
    if invalid is not None:
        raise EquimetricError(
            f"a gallery is made under certificates, not under {type(invalid).__name__}; read one with Certificate.load "
            "or IdentificationCertificate.load"
        )
    if not certificates:
        raise EquimetricError("a gallery needs a certificate, which says what its vectors are; calibrate a threshold")
    tasks = [item.task for item in certificates]
    if len(set(tasks)) < len(tasks):
        raise EquimetricError(f"there are {len(tasks)} certificates of {tasks[0]}; give one for each task")
    for other in certificates[1:]:
        for name in COMMON_FIELDS:
            first, second = _field(certificates[0], name), _field(other, name)
            if first != second:
                raise EquimetricError(
                    f"the certificates differ in {name}: {first!r} and {second!r}; calibrate both with one model"
                )
    return certificates


def load_certificates(folder: Path, tasks: Sequence[str]) -> tuple[AnyCertificate, ...]:
    """The certificates in the folder of a gallery."""
    return tuple(KINDS[task].load(folder / f"{task}.json") for task in tasks)


def require_same(recorded: Sequence[AnyCertificate], other: AnyCertificate) -> None:
    """Raise an error unless `other` is one of the certificates that a gallery was made under."""
    same_task = [certificate for certificate in recorded if certificate.task == other.task]
    if not same_task:
        raise EquimetricError(
            f"this gallery was made under a certificate of {recorded[0].task}, not of {other.task}; make a gallery "
            "under both"
        )
    for name in (*COMMON_FIELDS, "threshold"):
        recorded_value, other_value = _field(same_task[0], name), _field(other, name)
        if recorded_value != other_value:
            raise EquimetricError(
                f"this gallery was made under a certificate with {name} {recorded_value!r}, not {other_value!r}; "
                "use its own, or make a gallery under the other one"
            )
    if same_task[0].to_dict() != other.to_dict():
        raise EquimetricError(
            f"this gallery was made under another certificate of {other.task}, of {same_task[0].date}, not of "
            f"{other.date}; use its own, or make a gallery under the other one"
        )


def _field(certificate: AnyCertificate, name: str) -> object:
    return certificate.data.dimension if name == "dimension" else getattr(certificate, name)
