"""The area under a metric over growing shift."""

import math

import numpy as np
import pytest
from scipy import stats

from equimetric.errors import EquimetricError
from equimetric.evaluation.shift_curve import area_under_shift, shift_curve
from equimetric.intervals import t_interval

DISTANCES = [19.16, 28.49, 52.62, 72.20]
VALUES = [[0.70, 0.66, 0.61, 0.50], [0.72, 0.67, 0.60, 0.52], [0.69, 0.64, 0.62, 0.49]]


def test_the_area_of_a_worked_case():
    """By hand: (28.49 − 19.16)/53.04 · 0.68 + (52.62 − 28.49)/53.04 · 0.635 + (72.20 − 52.62)/53.04 · 0.555."""
    (area,) = area_under_shift(DISTANCES, VALUES[0])
    assert area == pytest.approx((9.33 * 0.68 + 24.13 * 0.635 + 19.58 * 0.555) / 53.04, abs=1e-12)


def test_the_interval_is_over_seeds():
    curve = shift_curve(DISTANCES, VALUES)
    areas = [area_under_shift(DISTANCES, row)[0] for row in VALUES]
    assert curve.areas.tolist() == areas
    low, high = stats.t.interval(0.95, 2, loc=np.mean(areas), scale=stats.sem(areas))
    assert (curve.area.low, curve.area.high) == pytest.approx((low, high), abs=1e-12)
    assert curve.area.n == 3
    second = [row[1] for row in VALUES]
    assert curve.points[1].half_width == pytest.approx(stats.t.ppf(0.975, 2) * stats.sem(second), abs=1e-12)


def test_a_constant_metric_has_its_value_as_area_and_scales_do_not_count():
    assert area_under_shift(DISTANCES, [0.4] * 4) == pytest.approx([0.4])
    stretched = [3 * distance + 7 for distance in DISTANCES]
    assert area_under_shift(stretched, VALUES) == pytest.approx(area_under_shift(DISTANCES, VALUES))


def test_the_order_of_splits_does_not_count_and_equal_distances_are_one_point():
    shuffled = [2, 0, 3, 1]
    table = np.array(VALUES)[:, shuffled]
    curve = shift_curve([DISTANCES[split] for split in shuffled], table)
    assert curve.distances.tolist() == DISTANCES
    assert curve.values.tolist() == VALUES
    assert curve.areas.tolist() == shift_curve(DISTANCES, VALUES).areas.tolist()
    for pair in ([0.5, 0.7], [0.7, 0.5]):
        assert area_under_shift([0, 1, 1, 2], [0.8, *pair, 0.2]) == pytest.approx((0.7 + 0.4) / 2)


def test_one_seed_has_no_interval():
    curve = shift_curve(DISTANCES, VALUES[0])
    assert curve.area.mean == area_under_shift(DISTANCES, VALUES[0])[0]
    assert math.isnan(curve.area.half_width)


@pytest.mark.parametrize(
    ("distances", "values", "message"),
    [
        ([1, 2, 3], [[0.1, 0.2]], "do not belong to distances"),
        ([1, 1], [[0.1, 0.2]], "at least two different distances"),
        ([1, 2], [[0.1, math.nan]], "must be finite numbers"),
    ],
)
def test_impossible_curves(distances, values, message):
    with pytest.raises(EquimetricError, match=message):
        shift_curve(distances, values)


def test_ten_values_of_a_worked_interval():
    """Mean 59.58, s = 0.323213: ± 0.231213."""
    values = 59.58 + 0.323213 * stats.zscore(np.arange(10.0), ddof=1)
    found = t_interval(values)
    assert found.mean == pytest.approx(59.58)
    assert found.half_width == pytest.approx(0.231213, abs=1e-6)
    for wrong, message in (([], "at least 1"), ([[1.0]], "plain list")):
        with pytest.raises(EquimetricError, match=message):
            t_interval(wrong)
    with pytest.raises(EquimetricError, match="confidence is 95"):
        t_interval([1.0, 2.0], 95)
