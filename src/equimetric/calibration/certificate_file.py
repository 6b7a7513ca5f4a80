"""The JSON document of a certificate, written and read."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from equimetric.calibration.certificate import Certificate, RatesByName
from equimetric.calibration.certificate_base import SCORES, CalibrationData
from equimetric.calibration.cohort import CertifiedCohort
from equimetric.calibration.drift import DriftReference
from equimetric.calibration.new_classes import NewClassBounds
from equimetric.calibration.rates import ErrorRates, TargetRate
from equimetric.calibration.targets import FalseAccepts, read_target
from equimetric.errors import EquimetricError

__all__ = [
    "FAMILY",
    "SCHEMA",
    "certificate_document",
    "cohort_field",
    "data_field",
    "number_field",
    "parse_certificate",
    "read_certificate",
    "read_task_certificate",
    "text_field",
]

FAMILY, SCHEMA = "equimetric.calibration", 3
TASK = "verification"
Parsed = TypeVar("Parsed")


def certificate_document(certificate: Certificate) -> dict[str, Any]:
    """The document in plain types."""
    new_classes, reference = certificate.new_classes, certificate.reference
    return {
        "schema": f"{FAMILY}/{SCHEMA}",
        "task": certificate.task,
        "equimetric": certificate.equimetric,
        "date": certificate.date,
        "model": certificate.model,
        "preprocessing": certificate.preprocessing,
        "runtime": certificate.runtime,
        "cohort": None if certificate.cohort is None else certificate.cohort.to_dict(),
        "data": asdict(certificate.data),
        "options": dict(certificate.options),
        "target": certificate.target.to_dict(),
        "target_far": certificate.target_rate.far,
        "target_frr": certificate.target_rate.frr,
        "score": certificate.score,
        "threshold": certificate.threshold,
        "threshold_interval": list(certificate.threshold_interval),
        "threshold_interval_from": certificate.interval_from,
        "accepts": certificate.rule,
        "equivalent_cosine": certificate.equivalent_cosine,
        "fitted": certificate.fitted.to_dict(),
        "held_out": certificate.held_out.to_dict(),
        "new_classes": None if new_classes is None else new_classes.to_dict(),
        "fold_thresholds": list(certificate.fold_thresholds),
        "worst_classes": _list_rates(certificate.worst_classes),
        "violations": _list_rates(certificate.violations),
        "exceedances": _list_rates(certificate.exceedances),
        "data_sets": _list_rates(certificate.data_sets),
        "data_set_violations": _list_rates(certificate.data_set_violations),
        "reference": None if reference is None else reference.to_dict(),
    }


def read_certificate(file: Path) -> Certificate:
    """The certificate in a file; a damaged one, or one of a newer version or another task, raises an error."""
    return read_task_certificate(file, TASK, parse_certificate)


def read_task_certificate(file: Path, task: str, parse: Callable[[Mapping[str, Any]], Parsed]) -> Parsed:
    """What a file says, if it is a certificate of this task; KeyError, TypeError and ValueError mean damage."""
    document = _load_document(file)
    file_task = document.get("task", TASK)
    if file_task != task:
        raise EquimetricError(f"{str(file)!r} is a certificate of {file_task}, not of {task}; give one of {task}")
    try:
        return parse(document)
    except EquimetricError as problem:
        raise EquimetricError(f"the certificate {str(file)!r} is damaged: {problem}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        reason = f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)
        raise EquimetricError(f"the certificate {str(file)!r} is damaged: {reason}; calibrate again") from None


def _load_document(file: Path) -> dict[str, Any]:
    """The document in a file, if this version reads its schema."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EquimetricError(f"there is no certificate {str(file)!r}; write one with calibrate") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise EquimetricError(f"{str(file)!r} cannot be read as a certificate ({problem}); calibrate again") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    family, _, schema_number = str(schema).partition("/")
    if family != FAMILY or not schema_number.isdecimal():
        raise EquimetricError(f"{str(file)!r} is not a certificate of a calibration; give a file that calibrate wrote")
    if int(schema_number) > SCHEMA:
        raise EquimetricError(
            f"the certificate {str(file)!r} has schema {schema_number}, this version reads {SCHEMA}; upgrade equimetric"
        )
    assert isinstance(document, dict)
    if int(schema_number) < 3:
        document = {_current_name(name): value for name, value in document.items()}
    return document


def _current_name(name: str) -> str:
    """The name of a field as schema 3 has it: up to schema 2 a target rate was called wanted."""
    return name.replace("wanted_", "target_", 1) if name.startswith("wanted_") else name


def parse_certificate(document: Mapping[str, Any]) -> Certificate:
    """The certificate of a document of schema 1 to 3; KeyError, TypeError or ValueError where it is damaged."""
    is_schema_1 = document["schema"] == f"{FAMILY}/1"
    target_rate = TargetRate(
        *(
            number_field(name, value) if (value := document.get(name)) is not None else None
            for name in ("target_far", "target_frr")
        )
    )
    if (target_rate.far is None) == (target_rate.frr is None):
        raise ValueError(f"its target_far is {target_rate.far!r} and its target_frr {target_rate.frr!r}")
    target = FalseAccepts(target_rate.far or 0.0) if is_schema_1 else read_target(document["target"])
    low, high = (number_field("threshold_interval", end) for end in document["threshold_interval"])
    options = dict(document["options"])
    if options["geometry"] not in SCORES:
        raise ValueError(f"its geometry is {options['geometry']!r}")
    bounds, reference = (None, None) if is_schema_1 else (document["new_classes"], document["reference"])
    return Certificate(
        target=target,
        target_rate=target_rate,
        threshold=number_field("threshold", document["threshold"]),
        threshold_interval=(low, high),
        interval_from=str(document["threshold_interval_from"]),
        fitted=ErrorRates.from_dict(document["fitted"], target_rate),
        held_out=ErrorRates.from_dict(document["held_out"], target_rate),
        fold_thresholds=tuple(number_field("fold_thresholds", entry) for entry in document["fold_thresholds"]),
        worst_classes=_read_rates(document["worst_classes"], target_rate),
        violations=_read_rates(document["violations"], target_rate),
        exceedances=_read_rates(document["exceedances"], target_rate),
        data_sets=_read_rates(document["data_sets"], target_rate),
        data_set_violations=_read_rates(document["data_set_violations"], target_rate),
        data=data_field(document["data"]),
        options=options,
        equimetric=str(document["equimetric"]),
        new_classes=None if bounds is None else _read_bounds(bounds),
        model=text_field("model", document.get("model")),
        preprocessing=text_field("preprocessing", document.get("preprocessing")),
        reference=None if reference is None else DriftReference.from_dict(reference),
        date=text_field("date", document.get("date")),
        cohort=cohort_field(document.get("cohort")),
        runtime=text_field("runtime", document.get("runtime")),
    )


def number_field(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"its {name} is {value!r}")
    return float(value)


def text_field(name: str, value: Any) -> str | None:
    """A string or None."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"its {name} is {value!r}")
    return value


def cohort_field(document: Any) -> CertifiedCohort | None:
    """The cohort, if there is one."""
    return None if document is None else CertifiedCohort.from_dict(document)


def data_field(document: Any) -> CalibrationData:
    """What a threshold was calibrated on."""
    sizes = (int(number_field(name, document[name])) for name in ("samples", "dimension", "classes"))
    return CalibrationData(str(document["sha256"]), *sizes)


def _read_bounds(document: Any) -> NewClassBounds:
    far, frr = (
        None if document[name] is None else number_field(f"{name} of new classes", document[name])
        for name in ("far", "frr")
    )
    return NewClassBounds(
        far, frr, number_field("confidence", document["confidence"]), tuple(map(str, document["reasons"]))
    )


def _list_rates(rates: RatesByName) -> list[dict[str, Any]]:
    return [{"name": name, **error_rates.to_dict()} for name, error_rates in rates.items()]


def _read_rates(entries: Any, target_rate: TargetRate) -> dict[int | str, ErrorRates]:
    return {entry["name"]: ErrorRates.from_dict(entry, target_rate) for entry in entries}
