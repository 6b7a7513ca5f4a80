"""The JSON file of a certificate of identification, written and read."""

import json
import math
from pathlib import Path
from typing import Any

from equimetric.calibration.certificate import CalibrationData
from equimetric.errors import EquimetricError
from equimetric.evaluation.identification.protocol import read_protocol
from equimetric.files import write_atomically

__all__ = ["read_identification", "write_identification"]

FAMILY, SCHEMA, TASK = "equimetric.calibration", 2, "identification"
NUMBERS = (
    *("wanted_fpir", "threshold", "identities", "items", "fpir", "fnir", "held_out_fpir", "held_out_fnir"),
    *("strangers", "mated", "confidence"),
)
COUNTS = ("identities", "strangers", "mated")
BOUNDS = ("fpir_bound", "fnir_bound")


def write_identification(fields: dict[str, Any], file: Path) -> None:
    """Write the fields of a certificate as JSON."""
    document = {"schema": f"{FAMILY}/{SCHEMA}", "task": TASK, "accepts": "distance < threshold", **fields}
    write_atomically(file, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_identification(file: Path) -> dict[str, Any]:
    """The fields of the certificate in a file; one sentence where it is damaged, newer or of another task."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EquimetricError(
            f"there is no certificate {str(file)!r}; write one with calibrate_identification"
        ) from None
    except (OSError, ValueError, RecursionError) as problem:
        raise EquimetricError(f"{str(file)!r} cannot be read as a certificate ({problem}); calibrate again") from None
    _check_schema(document, file)
    try:
        return _parse(document)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        reason = f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)
        raise EquimetricError(f"the certificate {str(file)!r} is damaged: {reason}; calibrate again") from None


def _check_schema(document: Any, file: Path) -> None:
    schema = document.get("schema") if isinstance(document, dict) else None
    family, _, number = str(schema).partition("/")
    if family != FAMILY or not number.isdecimal():
        raise EquimetricError(
            f"{str(file)!r} is not a certificate of a calibration; give a file that calibrate_identification wrote"
        )
    if int(number) > SCHEMA:
        raise EquimetricError(
            f"the certificate {str(file)!r} has schema {number}, this version reads {SCHEMA}; upgrade equimetric"
        )
    task = document.get("task", "verification")
    if task != TASK:
        raise EquimetricError(f"{str(file)!r} is a certificate of {task}, not of {TASK}; read it with Certificate.load")


def _parse(document: dict[str, Any]) -> dict[str, Any]:
    numbers = {name: _read_number(name, document[name]) for name in NUMBERS}
    bounds = {name: None if document[name] is None else _read_number(name, document[name]) for name in BOUNDS}
    interval, data = document["threshold_interval"], document["data"]
    if document["geometry"] not in ("cosine", "euclidean"):
        raise ValueError(f"its geometry is {document['geometry']!r}")
    sizes = (int(_read_number(name, data[name])) for name in ("samples", "dimension", "classes"))
    return {
        **numbers,
        **{name: int(numbers[name]) for name in COUNTS},
        **bounds,
        "threshold_interval": None if interval is None else _read_pair(interval),
        "fold_thresholds": tuple(_read_number("fold_thresholds", one) for one in document["fold_thresholds"]),
        "geometry": str(document["geometry"]),
        "protocol": read_protocol(dict(document["protocol"])),
        "data": CalibrationData(str(data["sha256"]), *sizes),
        "equimetric": str(document["equimetric"]),
        "date": str(document["date"]),
    }


def _read_pair(interval: Any) -> tuple[float, float]:
    low, high = (_read_number("threshold_interval", end) for end in interval)
    return low, high


def _read_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"its {name} is {value!r}")
    return float(value)
