"""A metric over splits of growing shift, and the area under it.

Milbich, Roth, Sinha, Schmidt, Ghassemi, Ommer: "Characterizing Generalization under Out-Of-Distribution Shifts in Deep
Metric Learning" (2021). The shift of a split is the Fréchet distance between the class means of its two sides
(`equimetric.data.shifted_splits`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats
from equimetric.intervals import Interval, t_interval

__all__ = ["ShiftCurve", "area_under_shift", "shift_curve"]


@dataclass(frozen=True, eq=False)
class ShiftCurve:
    """A metric of n seeds on S splits, by rising distance.

    distances  (S,) Fréchet distances of the splits
    values     (n, S) of the metric
    points     the mean over seeds on each split
    areas      (n,) area under the curve of each seed, with distances scaled to [0, 1]
    area       their mean
    """

    distances: Floats
    values: Floats
    points: tuple[Interval, ...]
    areas: Floats
    area: Interval


def shift_curve(distances: Sequence[float] | Floats, values: ArrayLike, *, confidence: float = 0.95) -> ShiftCurve:
    """The curve of a metric: distances (S,) of the splits, values (n, S) of n seeds, or (S,) of one.

    Intervals are t-intervals over seeds; NaN where there is one.
    """
    distances, table = _check(distances, values)
    order = np.argsort(distances, kind="stable")
    areas = area_under_shift(distances, table)
    points = tuple(t_interval(table[:, split], confidence) for split in order)
    return ShiftCurve(distances[order], table[:, order], points, areas, t_interval(areas, confidence))


def area_under_shift(distances: Sequence[float] | Floats, values: ArrayLike) -> Floats:
    """∫₀¹ metric dx,  x = (d − d_min) / (d_max − d_min), by the trapezoid rule: (S,), (n, S) → (n,).

    A metric that no shift changes has its own value as area. The order of the splits does not count; splits of one
    distance are one point, the mean of theirs.
    """
    distances, table = _check(distances, values)
    unique_distances, split = np.unique(distances, return_inverse=True)
    if len(unique_distances) < 2:
        raise EquimetricError("the area under a metric needs splits of at least two different distances")
    means = np.stack([table[:, split == index].mean(axis=1) for index in range(len(unique_distances))], axis=1)
    scaled = (unique_distances - unique_distances[0]) / (unique_distances[-1] - unique_distances[0])
    return np.asarray(np.trapezoid(means, scaled, axis=1))


def _check(distances: Sequence[float] | Floats, values: ArrayLike) -> tuple[Floats, Floats]:
    """(S,) distances and (n, S) values in float64."""
    distances, table = np.asarray(distances, np.float64), np.atleast_2d(np.asarray(values, np.float64))
    if distances.ndim != 1 or table.ndim != 2 or table.shape[1] != len(distances) or not len(table):
        raise EquimetricError(
            f"values of shape {np.shape(values)} do not belong to distances of shape {distances.shape}; give (seeds, "
            "splits) and (splits,)"
        )
    if not (np.isfinite(distances).all() and np.isfinite(table).all()):
        raise EquimetricError("distances and values must be finite numbers; leave splits without a result out")
    return distances, table
