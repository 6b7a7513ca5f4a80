"""Which classes exceed a rate by more than noise: lower bounds of their rates, for all classes at once.

A rate with variance V and ν degrees of freedom exceeds w by more than noise if its lower bound, rate − t_ν √V, is above
w. The quantile t is that of Holm's level: α/m for the class of the smallest p-value among m, α/(m − 1) for the next,
and so on up to the first that is not above w, whose level holds for all that follow.

A few images often agree by chance. Two things keep them from proving anything: ν is never above n − 1, and V never
below that of as many independent trials at the target rate, w (1 − w) / trials.
"""

from dataclasses import dataclass

import numpy as np

from equimetric.calibration.two_way_rates import TwoWayRates
from equimetric.evaluation.engine.arrays import Floats

__all__ = ["MIN_IMAGES", "RateEstimates", "estimate_far", "estimate_frr", "lower_bounds"]

MIN_IMAGES = 3
"""Images and other classes that a class needs for a bound."""

MIN_VARIANCE = 1e-30
"""Of a target rate of 0 or 1."""


@dataclass(frozen=True)
class RateEstimates:
    """One rate of every class, its variance and the degrees of freedom of that, each (C,); NaN where unknown.

    trials  at most as many pairs are independent
    """

    rate: Floats
    variance: Floats
    degrees: Floats
    trials: Floats

    @staticmethod
    def join(parts: "list[RateEstimates]") -> "RateEstimates":
        """The estimates of several sets of classes as one."""
        names = ("rate", "variance", "degrees", "trials")
        return RateEstimates(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def estimate_far(rates: TwoWayRates) -> RateEstimates:
    """False accept rates with their two-way variance V = max(v_k + v_c − v_e, v_k, v_c).

    Satterthwaite: ν = V² / (v_k²/(n − 1) + v_c²/(C − 1) + v_e²/((n − 1)(C − 1))), and n − 1 or C − 1 where V is one
    term alone; at most the smaller of these two.
    """
    n, others = rates.images.astype(np.float64), rates.others.astype(np.float64)
    by_image, by_class, rest = rates.image_variance, rates.class_variance, rates.rest_variance
    with np.errstate(divide="ignore", invalid="ignore"):
        combined = by_image + by_class - rest
        variance = np.maximum(combined, np.maximum(by_image, by_class))
        spread = by_image**2 / (n - 1) + by_class**2 / (others - 1) + rest**2 / ((n - 1) * (others - 1))
        satterthwaite = variance**2 / spread
    single = np.where(by_image >= by_class, n - 1, others - 1)
    degrees = np.where((combined >= variance) & (spread > 0), satterthwaite, single)
    degrees = np.minimum(degrees, np.minimum(n, others) - 1)
    enough = (n >= MIN_IMAGES) & (others >= MIN_IMAGES)
    variance, degrees = np.where(enough, variance, np.nan), np.where(enough, degrees, np.nan)
    return RateEstimates(rates.far, variance, degrees, rates.negatives.astype(np.float64))


def estimate_frr(rates: TwoWayRates) -> RateEstimates:
    """False reject rates with the variance of deleting single images, n − 1 degrees of freedom.

    n images make no more than n / 2 independent pairs.
    """
    enough = rates.images >= MIN_IMAGES
    variance, degrees = (np.where(enough, values, np.nan) for values in (rates.frr_variance, rates.images - 1.0))
    return RateEstimates(rates.frr, variance, degrees, rates.images / 2)


def lower_bounds(estimates: RateEstimates, target_rate: float, confidence: float) -> Floats:
    """(C,) lower bounds of the rates at Holm's levels: above `target_rate` where a class exceeds it by more than noise.

    NaN for classes without a bound, which do not count among the m.
    """
    from scipy.special import stdtr, stdtrit

    bounds = np.full(len(estimates.rate), np.nan)
    defined = np.flatnonzero(np.isfinite(estimates.variance) & np.isfinite(estimates.rate))
    rate, degrees = estimates.rate[defined], estimates.degrees[defined]
    binomial_variance = target_rate * (1 - target_rate) / estimates.trials[defined]
    error = np.sqrt(np.maximum(estimates.variance[defined], np.maximum(binomial_variance, MIN_VARIANCE)))
    p_values = stdtr(degrees, (target_rate - rate) / error)
    levels = np.empty(len(defined))
    levels[np.argsort(p_values, kind="stable")] = _holm_levels(np.sort(p_values), 1 - confidence)
    bounds[defined] = np.maximum(0.0, rate + stdtrit(degrees, levels) * error)
    return bounds


def _holm_levels(ascending: Floats, level: float) -> Floats:
    """α/m, α/(m − 1), … for ascending p-values, and from the first that is not below its level on that one."""
    levels = level / np.arange(len(ascending), 0, -1)
    failed = np.flatnonzero(ascending >= levels)
    if len(failed):
        levels[failed[0] :] = levels[failed[0]]
    return levels
