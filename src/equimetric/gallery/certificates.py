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
"""What the certificates of one gallery have in common."""


def check_certificates(given: AnyCertificate | Iterable[AnyCertificate]) -> tuple[AnyCertificate, ...]:
    """The certificates of a new gallery: at least one, at most one for each task, all for the same vectors."""
    certificates = (given,) if isinstance(given, Certificate | IdentificationCertificate) else tuple(given)
    wrong = next((one for one in certificates if not isinstance(one, Certificate | IdentificationCertificate)), None)
    if wrong is not None:
        raise EquimetricError(
            f"a gallery is made under certificates, not under {type(wrong).__name__}; read one with Certificate.load "
            "or IdentificationCertificate.load"
        )
    if not certificates:
        raise EquimetricError("a gallery needs a certificate, which says what its vectors are; calibrate a threshold")
    tasks = [one.task for one in certificates]
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


def require_same(recorded: Sequence[AnyCertificate], given: AnyCertificate) -> None:
    """Raise an error unless `given` is one of the certificates that a gallery was made under."""
    same_task = [one for one in recorded if one.task == given.task]
    if not same_task:
        raise EquimetricError(
            f"this gallery was made under a certificate of {recorded[0].task}, not of {given.task}; make a gallery "
            "under both"
        )
    for name in (*COMMON_FIELDS, "threshold"):
        ours, theirs = _field(same_task[0], name), _field(given, name)
        if ours != theirs:
            raise EquimetricError(
                f"this gallery was made under a certificate with {name} {ours!r}, not {theirs!r}; use its own, or make "
                "a gallery under the other one"
            )
    if same_task[0].to_dict() != given.to_dict():
        raise EquimetricError(
            f"this gallery was made under another certificate of {given.task}, of {same_task[0].date}, not of "
            f"{given.date}; use its own, or make a gallery under the other one"
        )


def _field(certificate: AnyCertificate, name: str) -> object:
    return certificate.data.dimension if name == "dimension" else getattr(certificate, name)
