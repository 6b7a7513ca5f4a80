"""The calibration range: the thresholds over which consistency is measured."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.engine.pair_distances import PairDistances

__all__ = ["check_range_options", "range_ends", "range_thresholds"]


def range_thresholds(distances: Sequence[PairDistances], options: Mapping[str, Any]) -> Floats:
    """Evenly spaced thresholds over the given range, or between the distances of two false accept rates."""
    explicit = options["calibration_range"]
    ends = [_negative_quantile(distances, far) for far in options["calibration_far"]] if explicit is None else explicit
    if not ends[0] < ends[1]:
        raise EquimetricError(
            f"the calibration range {ends[0]:.6g} … {ends[1]:.6g} is empty because too many negative pairs have one "
            "distance; give calibration_far farther apart, or a calibration_range"
        )
    return np.linspace(ends[0], ends[1], options["calibration_points"])


def _negative_quantile(distances: Sequence[PairDistances], share: float) -> float:
    """Linear between the two nearest of all negative distances, as numpy's quantile."""
    exact_rank = share * (sum(part.negatives for part in distances) - 1)
    lower = math.floor(exact_rank)
    low, high = (_pooled_distance(distances, rank) for rank in (lower, math.ceil(exact_rank)))
    return low + (exact_rank - lower) * (high - low)


def _pooled_distance(distances: Sequence[PairDistances], rank: int) -> float:
    """The negative distance of that rank among all sets: the least t within which more than `rank` pairs lie."""
    if len(distances) == 1:
        return float(distances[0].negative_distance(rank))
    ends = [part.negative_distance([0, part.negatives - 1]) for part in distances]
    low, high = float(np.nextafter(min(end[0] for end in ends), -np.inf)), float(max(end[1] for end in ends))
    while low < (middle := (low + high) / 2) < high:
        within = sum(float(part.count_accepted(middle).negative) for part in distances)
        low, high = (low, middle) if within > rank else (middle, high)
    return high


def range_ends(thresholds: Floats) -> tuple[float, float]:
    """(d_min, d_max)."""
    return float(thresholds[0]), float(thresholds[-1])


def check_range_options(options: Mapping[str, Any]) -> None:
    """Raise an error for options that make no range of thresholds."""
    far, explicit = options["calibration_far"], options["calibration_range"]
    if explicit is None and not 0 <= far[0] < far[1] <= 1:
        raise EquimetricError(f"calibration_far is {far}; give two false accept rates, 0 ≤ smaller < larger ≤ 1")
    if explicit is not None and not explicit[0] < explicit[1]:
        raise EquimetricError(f"calibration_range is {explicit}; give two distances, the smaller first")
    if options["calibration_points"] < 2:
        raise EquimetricError(f"calibration_points is {options['calibration_points']}; give at least 2")
    if not options["utility_c"] > 0:
        raise EquimetricError(f"utility_c is {options['utility_c']}; give a number above 0")
