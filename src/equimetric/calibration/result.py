"""`Calibration`, the result of `calibrate`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equimetric.calibration.certificate import Certificate
from equimetric.calibration.rates import ErrorRates, sort_worst_first
from equimetric.escaping import name_text

__all__ = ["Calibration"]

CLASS_NAMES_SHOWN = 5


@dataclass(frozen=True, repr=False, eq=False)
class Calibration:
    """A threshold, how certain it is, and the error rates of classes it was not fitted on.

    threshold  pairs at a smaller distance are accepted as the same
    interval   of the threshold, under resampling of classes
    resampled  what the interval is from: single `pairs`, or to first order the `class counts`
    fitted     FAR and FRR at the threshold on its own data
    held_out   FAR and FRR of held-out pairs, each at the threshold of the other folds
    classes    the same by class, for all classes with negative pairs in their fold
    data_sets  the same by data set, where `members` are given
    """

    far: float
    threshold: float
    interval: tuple[float, float]
    resampled: str
    fitted: ErrorRates
    held_out: ErrorRates
    fold_thresholds: tuple[float, ...]
    classes: Mapping[int | str, ErrorRates]
    data_sets: Mapping[int | str, ErrorRates]
    fingerprint: str
    samples: int
    dimension: int
    options: Mapping[str, Any]

    @property
    def violations(self) -> dict[int | str, ErrorRates]:
        """Classes whose held-out false accept rate is above the target by more than noise, worst first."""
        return sort_worst_first({name: rates for name, rates in self.classes.items() if rates.violates})

    @property
    def exceedances(self) -> dict[int | str, ErrorRates]:
        """Classes whose held-out false accept rate is above the target, even if by chance; worst first."""
        return sort_worst_first({name: rates for name, rates in self.classes.items() if rates.exceeds})

    @property
    def data_set_violations(self) -> dict[int | str, ErrorRates]:
        """Data sets whose held-out false accept rate is above the target by more than noise, worst first."""
        return sort_worst_first({name: rates for name, rates in self.data_sets.items() if rates.violates})

    def worst(self, count: int = 10) -> dict[int | str, ErrorRates]:
        """The classes of the largest held-out false accept rate."""
        return dict(list(sort_worst_first(self.classes).items())[:count])

    def certificate(self) -> dict[str, Any]:
        """The document of the certificate, in plain types: see `Certificate`."""
        return Certificate.of(self).to_dict()

    def save(self, file: str | Path) -> None:
        """Write the certificate as JSON; `Certificate.load` reads it."""
        Certificate.of(self).save(file)

    def __repr__(self) -> str:
        low, high = self.interval
        confidence, folds = self.options["confidence"], self.options["folds"]
        lines = [
            f"Calibration for FAR {self.far:g}: accept distances below {self.threshold:.6g}",
            f"  threshold  {low:.6g} … {high:.6g} ({confidence:.0%}, classes resampled)",
            f"  fitted     FAR {self.fitted.far:.3g}, FRR {self.fitted.frr:.3g}",
            f"  held out   FAR {self.held_out.far:.3g}, FRR {self.held_out.frr:.3g} ({folds} class-disjoint folds)",
            f"  classes    {len(self.exceedances)} of {len(self.classes)} above the wanted FAR, "
            f"{len(self.violations)} by more than noise{_name_some(self.violations)}",
        ]
        if self.data_sets:
            violations = self.data_set_violations
            lines.append(f"  data sets  {len(violations)} of {len(self.data_sets)} violate it{_name_some(violations)}")
        return "\n".join(lines)


def _name_some(rates: Mapping[int | str, ErrorRates]) -> str:
    if not rates:
        return ""
    names = ", ".join(
        f"{name_text(str(name))} ({some.far:.2g})" for name, some in list(rates.items())[:CLASS_NAMES_SHOWN]
    )
    return f": {names}{', …' if len(rates) > CLASS_NAMES_SHOWN else ''}"
