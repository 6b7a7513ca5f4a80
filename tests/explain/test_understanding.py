"""The pictures of ideas are computed, and show what they say."""

import numpy as np
import pytest

from equimetric.explain import unified_view_curves
from equimetric.explain.mining import mining_sketch
from equimetric.explain.planes import digit_planes
from equimetric.explain.sphere import negative_distances, sphere_density


def test_digits_have_equal_accuracy_and_unequal_spread():
    even, uneven = digit_planes()
    assert even.recall == pytest.approx(uneven.recall, abs=1e-12)
    assert uneven.opis > 2 * even.opis


def test_distances_on_the_sphere_have_their_density():
    distance = np.linspace(0.01, 1.99, 400)
    draw = np.random.default_rng(0).normal(size=(2, 20000, 8))
    points = draw / np.linalg.norm(draw, axis=2, keepdims=True)
    found = np.linalg.norm(points[0] - points[1], axis=1)
    density = sphere_density(distance, 8)
    assert np.trapezoid(density, distance) == pytest.approx(1)
    assert np.trapezoid(density * distance, distance) == pytest.approx(found.mean(), abs=0.01)


def test_selections_take_what_they_say():
    taken = negative_distances(["all", "hard", "distance_weighted"])
    assert np.median(taken["hard"]) < np.median(taken["distance_weighted"]) < np.median(taken["all"])
    assert taken["distance_weighted"].max() < 1.4
    again = negative_distances(["distance_weighted"])
    np.testing.assert_array_equal(again["distance_weighted"], taken["distance_weighted"])


def test_mining_keeps_pairs_between_its_bounds():
    sketch = mining_sketch(0.1)
    assert all(kept == (cosine < sketch.positive_bound) for cosine, kept in sketch.positives)
    assert all(kept == (cosine > sketch.negative_bound) for cosine, kept in sketch.negatives)
    assert {kept for _, kept in sketch.positives} == {True, False}


def test_panels_of_the_unified_view_have_their_check_points():
    contrastive, triplet, lifted, binomial, raw = unified_view_curves()

    def at(curves, cosine):
        place = int((curves.similarity - cosine).abs().argmin())
        return float(curves.positive[place]), float(curves.negative[place])

    assert (at(contrastive, 0.49)[1], at(contrastive, 0.51)[1]) == (0, 1)
    assert (at(triplet, 0.58)[0], at(triplet, 0.62)[0]) == (1, 0)
    assert (at(triplet, 0.38)[1], at(triplet, 0.42)[1]) == (0, 1)
    assert at(binomial, 0.5) == pytest.approx((1, 25))
    fixed = np.exp(-np.array([0.2, 0.5, 0.8]))
    assert at(lifted, 0.0)[0] == pytest.approx(1 / (1 + fixed.sum()), abs=1e-6)
    assert 0 < at(raw, 0.5)[0] < 1
