"""The counts behind a threshold explorer are those of the Python API."""

import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort, evaluate, threshold_consistency
from equimetric.evaluation.engine import pair_distances as engine
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.metrics.roc import class_rates, far_and_frr
from equimetric.evaluation.threshold_profile import ThresholdProfile, threshold_profile


def embeddings_of(classes=12, images=7, dim=6, seed=0):
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(classes, dim))
    spread = draw.uniform(0.3, 1.2, size=classes)
    labels = np.repeat(np.arange(classes) * 3 + 5, images)
    noise = draw.normal(size=(classes * images, dim)) * np.repeat(spread, images)[:, None]
    return np.repeat(centres, images, axis=0) + noise, labels


def test_rates_are_those_of_brute_force():
    embeddings, labels = embeddings_of()
    profile = threshold_profile(embeddings, labels)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    distance = np.linalg.norm(unit[:, None] - unit, axis=2)
    first, second = np.triu_indices(len(labels), 1)
    same = labels[first] == labels[second]
    far_off = np.abs(distance[first, second, None] - profile.thresholds).min(axis=0) > 1e-9
    within = distance[first, second, None] <= profile.thresholds
    # The last threshold is itself the distance of a pair, which brute force may round to the other side.
    assert far_off[:-1].all()
    np.testing.assert_array_equal(profile.positive[far_off], within[same].sum(axis=0)[far_off])
    np.testing.assert_array_equal(profile.negative[far_off], within[~same].sum(axis=0)[far_off])
    for place, label in enumerate(profile.numbers):
        ends = (labels[first] == label).astype(int) + (labels[second] == label)
        np.testing.assert_array_equal(profile.class_positive[place, far_off], within[ends == 2].sum(axis=0)[far_off])
        np.testing.assert_array_equal(profile.class_negative[place, far_off], within[ends == 1].sum(axis=0)[far_off])


def test_rates_and_opis_equal_the_api():
    embeddings, labels = embeddings_of(seed=1)
    profile = threshold_profile(embeddings, labels)
    distances = pair_distances(prepare_sets(embeddings, labels))
    for place in (0, 40, 90, len(profile.thresholds) - 1):
        far, frr = far_and_frr(distances, profile.thresholds[place])
        assert (profile.far[place], profile.frr[place]) == pytest.approx((far, frr), abs=1e-12)
        each = class_rates(distances, profile.thresholds[place])
        np.testing.assert_allclose(profile.class_far[:, place], each.far, atol=1e-12)
        np.testing.assert_allclose(profile.class_frr[:, place], each.frr, atol=1e-12)
    found, scores = (
        threshold_consistency(embeddings, labels),
        evaluate(embeddings, labels, metrics=["opis", "opis@10%"]),
    )
    consistency = profile.consistency
    np.testing.assert_allclose(consistency.thresholds, found.thresholds, atol=1e-12)
    assert consistency.opis == pytest.approx(scores["opis"], abs=1e-12)
    assert consistency.epsilon_opis(0.1) == pytest.approx(scores["opis@10%"], abs=1e-12)


def test_thresholds_reach_from_few_positives_to_many_negatives():
    profile = threshold_profile(*embeddings_of(seed=2))
    assert (np.diff(profile.thresholds) > 0).all()
    assert 1 - profile.frr[0] <= 0.01 or profile.thresholds[0] == 0
    assert profile.far[-1] == pytest.approx(0.5, abs=0.01)


def test_counts_in_bins_are_close_to_those_of_all_pairs(monkeypatch):
    embeddings, labels = embeddings_of(classes=30, images=8, seed=3)
    exact = threshold_profile(embeddings, labels)
    monkeypatch.setattr(engine, "MAX_KEPT_PAIRS", 100)
    binned = threshold_profile(embeddings, labels)
    within = slice(*binned.calibration)
    np.testing.assert_allclose(binned.far[within], exact.far[slice(*exact.calibration)], atol=2e-3)
    assert binned.consistency.opis == pytest.approx(exact.consistency.opis, rel=0.02)


def test_scores_of_a_cohort_are_negated():
    embeddings, labels = embeddings_of(seed=4)
    others = embeddings_of(classes=30, images=3, seed=5)
    profile = threshold_profile(embeddings, labels, cohort=Cohort(others[0], others[1] + 1000))
    assert profile.scored
    assert (np.diff(profile.thresholds) > 0).all()
    assert profile.far[profile.calibration[0]] == pytest.approx(0.01, abs=2e-3)


def test_arrays_round_trip_exactly():
    profile = threshold_profile(*embeddings_of(seed=6))
    again = ThresholdProfile.from_arrays(profile.arrays())
    for name, value in vars(profile).items():
        np.testing.assert_array_equal(getattr(again, name), value, err_msg=name)
    assert again.consistency.opis == profile.consistency.opis


def test_one_class_with_pairs_is_an_error():
    embeddings, _ = embeddings_of(classes=1, images=4)
    with pytest.raises(EquimetricError, match="compares classes"):
        threshold_profile(embeddings, [0, 0, 1, 2])
