"""The JSON document of a certificate of identification, read; `certificate_file` has what all certificates share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equimetric.calibration.certificate_base import SCORES
from equimetric.calibration.certificate_file import (
    cohort_field,
    data_field,
    number_field,
    read_task_certificate,
    text_field,
)
from equimetric.evaluation.identification.protocol import read_protocol

__all__ = ["TASK", "read_identification"]

TASK = "identification"
NUMBERS = (
    *("target_fpir", "threshold", "identities", "items", "fpir", "fnir", "held_out_fpir", "held_out_fnir"),
    *("strangers", "mated", "confidence"),
)
COUNTS = ("identities", "strangers", "mated")
BOUNDS = ("fpir_bound", "fnir_bound")


def read_identification(file: Path) -> dict[str, Any]:
    """The fields of the certificate in a file; one sentence where it is damaged, newer or of another task."""
    return read_task_certificate(file, TASK, _parse)


def _parse(document: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: number_field(name, document[name]) for name in NUMBERS}
    bounds = {name: None if document[name] is None else number_field(name, document[name]) for name in BOUNDS}
    interval = document["threshold_interval"]
    if document["geometry"] not in SCORES:
        raise ValueError(f"its geometry is {document['geometry']!r}")
    return {
        **numbers,
        **{name: int(numbers[name]) for name in COUNTS},
        **bounds,
        "threshold_interval": None if interval is None else _read_pair(interval),
        "fold_thresholds": tuple(number_field("fold_thresholds", value) for value in document["fold_thresholds"]),
        "geometry": str(document["geometry"]),
        "protocol": read_protocol(dict(document["protocol"])),
        "data": data_field(document["data"]),
        "equimetric": str(document["equimetric"]),
        "date": str(document["date"]),
        "model": text_field("model", document.get("model")),
        "preprocessing": text_field("preprocessing", document.get("preprocessing")),
        "cohort": cohort_field(document.get("cohort")),
        "runtime": text_field("runtime", document.get("runtime")),
    }


def _read_pair(interval: Any) -> tuple[float, float]:
    low, high = (number_field("threshold_interval", end) for end in interval)
    return low, high
