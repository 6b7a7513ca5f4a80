"""The certificate of a calibration: a JSON file of the threshold, its interval, all rates and a hash of the data."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from equimetric.calibration.rates import ErrorRates
from equimetric.errors import EquimetricError
from equimetric.files import write_atomically

if TYPE_CHECKING:
    from equimetric.calibration.result import Calibration

__all__ = ["CalibrationData", "Certificate"]

FAMILY, SCHEMA = "equimetric.calibration", 1
RatesByName = Mapping[int | str, ErrorRates]
Distances = TypeVar("Distances")


@dataclass(frozen=True)
class CalibrationData:
    """What a threshold was calibrated on; `sha256` is `data_fingerprint` of the embeddings and labels."""

    sha256: str
    samples: int
    dimension: int
    classes: int


@dataclass(frozen=True)
class Certificate:
    """What was calibrated on what: `Certificate.load("threshold.json").accepts(distance)`.

    wanted_far          target false accept rate
    threshold           pairs at a smaller distance are accepted as the same
    threshold_interval  of the threshold, under resampling of classes
    interval_from       what the interval is from: `pairs`, or `class counts` to first order
    fitted, held_out    rates at the threshold on its own data, and of held-out classes
    worst_classes, violations, exceedances, data_sets, data_set_violations
                        held-out rates by name: see `Calibration`
    data                what the threshold was calibrated on
    options             of `calibrate`, the geometry of the distances among them
    equimetric          version that wrote the certificate
    """

    wanted_far: float
    threshold: float
    threshold_interval: tuple[float, float]
    interval_from: str
    fitted: ErrorRates
    held_out: ErrorRates
    fold_thresholds: tuple[float, ...]
    worst_classes: RatesByName
    violations: RatesByName
    exceedances: RatesByName
    data_sets: RatesByName
    data_set_violations: RatesByName
    data: CalibrationData
    options: Mapping[str, Any]
    equimetric: str

    @classmethod
    def of(cls, calibration: "Calibration") -> "Certificate":
        """The certificate of a calibration."""
        return cls(
            wanted_far=calibration.far,
            threshold=calibration.threshold,
            threshold_interval=calibration.interval,
            interval_from=calibration.resampled,
            fitted=calibration.fitted,
            held_out=calibration.held_out,
            fold_thresholds=calibration.fold_thresholds,
            worst_classes=calibration.worst(),
            violations=calibration.violations,
            exceedances=calibration.exceedances,
            data_sets=calibration.data_sets,
            data_set_violations=calibration.data_set_violations,
            data=CalibrationData(
                calibration.fingerprint, calibration.samples, calibration.dimension, len(calibration.classes)
            ),
            options=dict(calibration.options),
            equimetric=version("equimetric"),
        )

    @property
    def geometry(self) -> str:
        """What the distances are: `cosine` (Euclidean between unit vectors) or `euclidean`."""
        return str(self.options["geometry"])

    def accepts(self, distance: Distances) -> Any:
        """Whether pairs at this distance are accepted as the same: a number, an array or a tensor."""
        return distance < self.threshold  # type: ignore[operator]

    def save(self, file: str | Path) -> None:
        """Write the certificate as JSON."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(Path(file), text + "\n")

    @classmethod
    def load(cls, file: str | Path) -> "Certificate":
        """Read a certificate; a damaged file, or one of a newer version, raises an error."""
        file = Path(file)
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise EquimetricError(f"there is no certificate {str(file)!r}; write one with calibrate") from None
        except (OSError, ValueError) as problem:
            raise EquimetricError(
                f"{str(file)!r} cannot be read as a certificate ({problem}); calibrate again"
            ) from None
        _check_schema(document, file)
        try:
            return cls.from_dict(document)
        except (KeyError, TypeError, ValueError) as problem:
            reason = f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)
            raise EquimetricError(f"the certificate {str(file)!r} is damaged: {reason}; calibrate again") from None

    def to_dict(self) -> dict[str, Any]:
        """The document in plain types."""
        return {
            "schema": f"{FAMILY}/{SCHEMA}",
            "equimetric": self.equimetric,
            "data": asdict(self.data),
            "options": dict(self.options),
            "wanted_far": self.wanted_far,
            "threshold": self.threshold,
            "threshold_interval": list(self.threshold_interval),
            "threshold_interval_from": self.interval_from,
            "accepts": "distance < threshold",
            "fitted": self.fitted.to_dict(),
            "held_out": self.held_out.to_dict(),
            "fold_thresholds": list(self.fold_thresholds),
            "worst_classes": _list_rates(self.worst_classes),
            "violations": _list_rates(self.violations),
            "exceedances": _list_rates(self.exceedances),
            "data_sets": _list_rates(self.data_sets),
            "data_set_violations": _list_rates(self.data_set_violations),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Certificate":
        """The certificate of a document; KeyError, TypeError or ValueError where it is damaged."""
        far = _read_number("wanted_far", document["wanted_far"])
        low, high = (_read_number("threshold_interval", end) for end in document["threshold_interval"])
        options = dict(document["options"])
        if options["geometry"] not in ("cosine", "euclidean"):
            raise ValueError(f"its geometry is {options['geometry']!r}")
        return cls(
            wanted_far=far,
            threshold=_read_number("threshold", document["threshold"]),
            threshold_interval=(low, high),
            interval_from=str(document["threshold_interval_from"]),
            fitted=ErrorRates.from_dict(document["fitted"], far),
            held_out=ErrorRates.from_dict(document["held_out"], far),
            fold_thresholds=tuple(_read_number("fold_thresholds", one) for one in document["fold_thresholds"]),
            worst_classes=_read_rates(document["worst_classes"], far),
            violations=_read_rates(document["violations"], far),
            exceedances=_read_rates(document["exceedances"], far),
            data_sets=_read_rates(document["data_sets"], far),
            data_set_violations=_read_rates(document["data_set_violations"], far),
            data=_read_data(document["data"]),
            options=options,
            equimetric=str(document["equimetric"]),
        )


def _check_schema(document: Any, file: Path) -> None:
    schema = document.get("schema") if isinstance(document, dict) else None
    family, _, number = str(schema).partition("/")
    if family != FAMILY or not number.isdecimal():
        raise EquimetricError(f"{str(file)!r} is not a certificate of a calibration; give a file that calibrate wrote")
    if int(number) > SCHEMA:
        raise EquimetricError(
            f"the certificate {str(file)!r} has schema {number}, this version reads {SCHEMA}; upgrade equimetric"
        )


def _read_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"its {name} is {value!r}")
    return float(value)


def _read_data(document: Any) -> CalibrationData:
    sizes = (int(_read_number(name, document[name])) for name in ("samples", "dimension", "classes"))
    return CalibrationData(str(document["sha256"]), *sizes)


def _list_rates(rates: RatesByName) -> list[dict[str, Any]]:
    return [{"name": name, **some.to_dict()} for name, some in rates.items()]


def _read_rates(entries: Any, far: float) -> dict[int | str, ErrorRates]:
    return {entry["name"]: ErrorRates.from_dict(entry, far) for entry in entries}
