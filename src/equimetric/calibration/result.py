"""`Calibration`, the result of `calibrate`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equimetric.calibration.certificate import Certificate
from equimetric.calibration.cohort import CertifiedCohort
from equimetric.calibration.drift import DriftReference
from equimetric.calibration.new_classes import NewClassBounds
from equimetric.calibration.rates import ErrorRates, TargetRate, sort_worst_first
from equimetric.calibration.targets import Target
from equimetric.evaluation.metrics.verification import DistanceHistogram

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Calibration"]


@dataclass(frozen=True, repr=False, eq=False)
class Calibration:
    """A threshold, how certain it is, and the error rates of classes it was not fitted on.

    target       what the threshold was chosen for
    target_rate  the rate that classes are held to: that of the target, or for costs the FAR of all pairs
    threshold    pairs at a smaller distance are accepted as the same; with a cohort, pairs of a larger score
    interval     of the threshold, under resampling of classes
    resampled    what the interval is from: single `pairs`, or to first order the `class counts`
    fitted       FAR and FRR at the threshold on its own data
    held_out     FAR and FRR of held-out pairs, each at the threshold of the other folds
    new_classes  upper bounds of FAR and FRR for classes not seen yet
    classes      held-out rates by class, for all classes with negative pairs in their fold
    data_sets    the same by data set, where `members` are given
    histogram    distances of positive and negative pairs, or their scores with a cohort
    reference    nearest neighbours of the data, for `Certificate.check`
    cohort       what normalises the scores
    """

    target: Target
    target_rate: TargetRate
    threshold: float
    interval: tuple[float, float]
    resampled: str
    fitted: ErrorRates
    held_out: ErrorRates
    new_classes: NewClassBounds
    fold_thresholds: tuple[float, ...]
    classes: Mapping[int | str, ErrorRates]
    data_sets: Mapping[int | str, ErrorRates]
    histogram: DistanceHistogram
    reference: DriftReference
    fingerprint: str
    samples: int
    dimension: int
    options: Mapping[str, Any]
    date: str
    model: str | None = None
    preprocessing: str | None = None
    cohort: CertifiedCohort | None = None

    @property
    def violations(self) -> dict[int | str, ErrorRates]:
        """Classes whose held-out rate is above the target by more than noise, worst first."""
        return sort_worst_first({name: rates for name, rates in self.classes.items() if rates.violates})

    @property
    def exceedances(self) -> dict[int | str, ErrorRates]:
        """Classes whose held-out rate is above the target, even if by chance; worst first."""
        return sort_worst_first({name: rates for name, rates in self.classes.items() if rates.exceeds})

    @property
    def data_set_violations(self) -> dict[int | str, ErrorRates]:
        """Data sets whose held-out rate is above the target by more than noise, worst first."""
        return sort_worst_first({name: rates for name, rates in self.data_sets.items() if rates.violates})

    def worst(self, count: int = 10) -> dict[int | str, ErrorRates]:
        """The classes of the largest held-out rate."""
        return dict(list(sort_worst_first(self.classes).items())[:count])

    def certificate(self) -> dict[str, Any]:
        """The document of the certificate, in plain types: see `Certificate`."""
        return Certificate.from_calibration(self).to_dict()

    def save(self, file: str | Path) -> None:
        """Write the certificate as JSON; `Certificate.load` reads it."""
        Certificate.from_calibration(self).save(file)

    def plot_classes(self, *, most: int = 30) -> "Figure":
        """Held-out FAR and FRR of the worst classes, with their lower bounds and the target rate."""
        from equimetric.calibration.plots import plot_class_rates

        return plot_class_rates(self, most=most)

    def plot_distances(self) -> "Figure":
        """Distances of positive and negative pairs, with the threshold and its interval."""
        from equimetric.calibration.plots import plot_pair_distances

        return plot_pair_distances(self)

    def __repr__(self) -> str:
        return str(Certificate.from_calibration(self))
