"""False accept and false reject rates of classes, data sets and all pairs, with lower bounds that tell from noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.pair_distances import PairDistances

__all__ = ["ErrorRates", "class_counts", "pooled_rates", "rates_by_class", "sort_worst_first"]


@dataclass(frozen=True)
class ErrorRates:
    """Rates of accepted negatives and rejected positives, of one class, one data set or all pairs.

    far, frr   NaN without such pairs
    far_bound  lower confidence bound of the false accept rate: of a class as if its pairs were independent (Wilson), of
               several classes together from how much they differ
    """

    far: float
    frr: float
    negatives: int
    positives: int
    far_bound: float
    wanted_far: float

    @property
    def exceeds(self) -> bool:
        """Whether the false accept rate is above the target."""
        return self.far > self.wanted_far

    @property
    def violates(self) -> bool:
        """Whether the false accept rate is above the target by more than noise."""
        return self.far_bound > self.wanted_far

    def to_dict(self) -> dict[str, Any]:
        """In plain types; None where undefined."""
        return {
            "far": _none_for_nan(self.far),
            "frr": _none_for_nan(self.frr),
            "negatives": self.negatives,
            "positives": self.positives,
            "far_bound": _none_for_nan(self.far_bound),
            "exceeds": self.exceeds,
            "violates": self.violates,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], wanted_far: float) -> "ErrorRates":
        """The rates that `to_dict` wrote."""
        far, frr, bound = (
            math.nan if document[key] is None else float(document[key]) for key in ("far", "frr", "far_bound")
        )
        return cls(far, frr, int(document["negatives"]), int(document["positives"]), bound, wanted_far)


def class_counts(distances: PairDistances, threshold: float) -> Floats:
    """(accepted negatives, accepted positives, negatives, positives) of every class, (C, 4)."""
    accepted = distances.accepted_by_class([threshold], strict=True)
    return np.stack(
        [
            accepted.negative[:, 0],
            accepted.positive[:, 0],
            distances.negatives_by_class.astype(np.float64),
            distances.positives_by_class.astype(np.float64),
        ],
        axis=1,
    )


def rates_by_class(counts: Mapping[int | str, Floats], far: float, confidence: float) -> dict[int | str, ErrorRates]:
    """Rates of single classes from their counts (4,), with bounds that hold for all classes at once (Bonferroni)."""
    each = 1 - (1 - confidence) / max(1, len(counts))
    return {
        name: _rates(some, far, _wilson_lower_bound(some[0], some[2], each) if some[2] else math.nan)
        for name, some in counts.items()
    }


def pooled_rates(counts: Floats, far: float, confidence: float) -> ErrorRates:
    """Rates of all pairs of some classes, (C, 4); the bound is from how much the classes differ.

    If class c were drawn w_c times, FAR = (Σ w_c a_c − A) / (Σ w_c n_c − N), see `threshold_interval`; its derivative
    by w_c, (a_c − FAR·n_c) / N, is what class c contributes to the variance.
    """
    accepted, _, negatives, _ = together = counts.sum(axis=0) / [2, 1, 2, 1]  # a negative pair is of two classes
    rate = accepted / negatives
    influence = (counts[:, 0] - rate * counts[:, 2]) / negatives
    error = math.sqrt(float(influence @ influence) * len(counts) / max(1, len(counts) - 1))
    return _rates(together, far, max(0.0, rate - NormalDist().inv_cdf(confidence) * error))


def sort_worst_first(rates: Mapping[int | str, ErrorRates]) -> dict[int | str, ErrorRates]:
    """By falling false accept rate; those without negative pairs last."""
    return dict(sorted(rates.items(), key=lambda item: -item[1].far if item[1].negatives else math.inf))


def _rates(counts: Floats, far: float, far_bound: float) -> ErrorRates:
    accepted, accepted_positives, negatives, positives = (float(count) for count in counts)
    return ErrorRates(
        far=accepted / negatives if negatives else math.nan,
        frr=1 - accepted_positives / positives if positives else math.nan,
        negatives=round(negatives),
        positives=round(positives),
        far_bound=float(far_bound),
        wanted_far=far,
    )


def _wilson_lower_bound(accepted: float, trials: float, confidence: float) -> float:
    """One-sided: (p + z²/2n − z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), where p = accepted / n."""
    z = NormalDist().inv_cdf(confidence)
    share = accepted / trials
    spread = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    return max(0.0, (share + z**2 / (2 * trials) - spread) / (1 + z**2 / trials))


def _none_for_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
