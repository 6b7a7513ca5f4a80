"""False accept and false reject rates of classes, data sets and all pairs, with lower bounds that tell from noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from equimetric.calibration.class_bounds import RateEstimates, lower_bounds
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.pair_distances import PairDistances

__all__ = ["ErrorRates", "TargetRate", "class_counts", "pooled_rates", "rates_by_class", "sort_worst_first"]


@dataclass(frozen=True)
class TargetRate:
    """The rate that classes are held to: one of the two."""

    far: float | None = None
    frr: float | None = None


@dataclass(frozen=True)
class ErrorRates:
    """Rates of accepted negatives and rejected positives, of one class, one data set or all pairs.

    far, frr     NaN without such pairs. All pairs count alike, except in the FAR of a class: there every other class
                 counts alike, however many images it has
    far_bound, frr_bound
                 lower confidence bounds; NaN where there are too few images. Those of a class hold for all classes at
                 once, see `class_bounds`; those of several classes together are from how much they differ
    target_far, target_frr
                 the one of them that the class or data set is held to; the other is None
    """

    far: float
    frr: float
    negatives: int
    positives: int
    far_bound: float
    target_far: float | None
    frr_bound: float = math.nan
    target_frr: float | None = None

    @property
    def exceeds(self) -> bool:
        """Whether the rate is above the target."""
        return self._above(self.far, self.frr)

    @property
    def violates(self) -> bool:
        """Whether the rate is above the target by more than noise."""
        return self._above(self.far_bound, self.frr_bound)

    def _above(self, far: float, frr: float) -> bool:
        if self.target_frr is not None:
            return frr > self.target_frr
        return self.target_far is not None and far > self.target_far

    @property
    def held_rate(self) -> float:
        """The rate that is compared with the target; −1 where there are no pairs."""
        rate = self.far if self.target_frr is None else self.frr
        return -1.0 if math.isnan(rate) else rate

    def to_dict(self) -> dict[str, Any]:
        """The rates in plain types; None where undefined."""
        return {
            "far": _none_for_nan(self.far),
            "frr": _none_for_nan(self.frr),
            "negatives": self.negatives,
            "positives": self.positives,
            "far_bound": _none_for_nan(self.far_bound),
            "frr_bound": _none_for_nan(self.frr_bound),
            "exceeds": self.exceeds,
            "violates": self.violates,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], target_rate: TargetRate) -> "ErrorRates":
        """The rates that `to_dict` wrote."""
        far, frr, far_bound = (_nan_for_none(document[key]) for key in ("far", "frr", "far_bound"))
        pairs = int(document["negatives"]), int(document["positives"])
        frr_bound = _nan_for_none(document.get("frr_bound"))
        return cls(far, frr, *pairs, far_bound, target_rate.far, frr_bound, target_rate.frr)


def class_counts(distances: PairDistances, threshold: float) -> Floats:
    """(accepted negatives, accepted positives, negatives, positives) of every class, (C, 4)."""
    accepted = distances.count_accepted_by_class([threshold], strictly_below=True)
    return np.stack(
        [
            accepted.negative[:, 0],
            accepted.positive[:, 0],
            distances.negatives_by_class.astype(np.float64),
            distances.positives_by_class.astype(np.float64),
        ],
        axis=1,
    )


def rates_by_class(
    names: Sequence[int | str],
    counts: Floats,
    far: RateEstimates,
    frr: RateEstimates,
    target_rate: TargetRate,
    confidence: float,
) -> dict[int | str, ErrorRates]:
    """Rates of single classes, with bounds that hold for all of them at once.

    The rate that has no target is held against that of all pairs.
    """
    accepted, accepted_positives, negatives, positives = counts.sum(axis=0)
    far_bounds = lower_bounds(far, accepted / negatives if target_rate.far is None else target_rate.far, confidence)
    all_frr = 1 - accepted_positives / positives
    frr_bounds = lower_bounds(frr, all_frr if target_rate.frr is None else target_rate.frr, confidence)
    return {
        name: ErrorRates(
            far=_number(far.rate[index]),
            frr=_number(frr.rate[index]),
            negatives=round(counts[index, 2]),
            positives=round(counts[index, 3]),
            far_bound=_number(far_bounds[index]),
            target_far=target_rate.far,
            frr_bound=_number(frr_bounds[index]),
            target_frr=target_rate.frr,
        )
        for index, name in enumerate(names)
    }


def pooled_rates(counts: Floats, target_rate: TargetRate, confidence: float) -> ErrorRates:
    """Rates of all pairs of some classes, (C, 4); the bounds are from how much the classes differ.

    If class c were drawn w_c times, FAR = (Σ w_c a_c − A) / (Σ w_c n_c − N), see `threshold_interval`; its derivative
    by w_c, (a_c − FAR·n_c) / N, is what class c contributes to the variance. FRR alike, without A and N.
    """
    accepted, accepted_positives, negatives, positives = counts.sum(axis=0) / [2, 1, 2, 1]  # of two classes, of one
    far, far_bound = _pooled_rate(counts[:, 0], counts[:, 2], accepted, negatives, confidence)
    rejected = counts[:, 3] - counts[:, 1]
    frr, frr_bound = _pooled_rate(rejected, counts[:, 3], positives - accepted_positives, positives, confidence)
    return ErrorRates(
        far, frr, round(negatives), round(positives), far_bound, target_rate.far, frr_bound, target_rate.frr
    )


def _pooled_rate(
    errors: Floats, pairs: Floats, all_errors: float, all_pairs: float, confidence: float
) -> tuple[float, float]:
    """A rate and its lower bound."""
    if not all_pairs:
        return math.nan, math.nan
    rate = float(all_errors / all_pairs)
    influence = (errors - rate * pairs) / all_pairs
    error = math.sqrt(float(influence @ influence) * len(errors) / max(1, len(errors) - 1))
    return rate, max(0.0, rate - NormalDist().inv_cdf(confidence) * error)


def sort_worst_first(rates: Mapping[int | str, ErrorRates]) -> dict[int | str, ErrorRates]:
    """Sort by falling rate, the one held to a target; entries without such pairs come last."""
    return dict(sorted(rates.items(), key=lambda item: -item[1].held_rate))


def _number(value: float) -> float:
    return math.nan if math.isnan(value) else float(value)


def _none_for_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def _nan_for_none(value: Any) -> float:
    return math.nan if value is None else float(value)
