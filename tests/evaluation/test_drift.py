"""Unlabelled embeddings are as certified, shifted, or too few; chance alone rarely raises an alarm."""

import numpy as np
import pytest

from equimetric.calibration import Certificate, calibrate
from equimetric.calibration.drift import check_drift, drift_reference
from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances


def draw_space(classes, each, seed, *, common=0.0):
    """Classes at random places; with a direction in common they crowd."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    centres = generator.normal(size=(classes, 8))
    centres[:, 0] += common
    return (centres[labels] + 0.4 * generator.normal(size=(classes * each, 8))).astype(np.float32), labels


def shares_of_alarms(classes, each, draws, geometry="cosine"):
    """How often new draws raise an alarm: of as many classes, of twice as many, and crowded or scaled ones."""
    alarms = []
    for seed in range(draws):
        sets = prepare_sets(*draw_space(classes, each, (seed, 0)), geometry=geometry)
        distances = pair_distances(sets)
        reference = drift_reference(sets, distances, 0.95, 0)
        changed = (
            draw_space(classes, each, (seed, 3), common=2.0)[0]
            if geometry == "cosine"
            else 0.7 * draw_space(classes, each, (seed, 3))[0]
        )
        given = draw_space(classes, each, (seed, 1))[0], draw_space(2 * classes, each, (seed, 2))[0], changed
        threshold = float(distances.negative_distance(distances.negatives // 100))
        how = {"geometry": geometry, "threshold": threshold, "certified_far": 1e-2, "seed": 0}
        alarms.append([check_drift(reference, vectors, **how).shifted for vectors in given])
    return np.mean(alarms, axis=0)


@pytest.mark.parametrize("geometry", ["cosine", "euclidean"])
def test_alarms_are_rare_by_chance_and_frequent_after_a_shift(geometry):
    same, more, shifted = shares_of_alarms(40, 8, 30, geometry)
    assert same <= 0.1
    assert more <= 0.1
    assert shifted >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "each"), [(40, 8), (40, 20), (150, 5)])
def test_false_alarms_in_two_hundred_draws(classes, each):
    same, more, shifted = shares_of_alarms(classes, each, 200)
    assert same <= 0.05
    assert more <= 0.05
    assert shifted >= 0.9


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    file = tmp_path_factory.mktemp("drift") / "certificate.json"
    calibrate(*draw_space(60, 8, 0), far=1e-2, resamples=10, model="abc").save(file)
    return Certificate.load(file)


def test_the_answer_has_the_size_of_the_shift_and_the_rate_to_expect(certificate):
    same = certificate.check(draw_space(60, 8, 1)[0])
    assert same.answer == "as certified"
    assert same.shift < same.chance
    assert same.certified_far == certificate.fitted.far
    crowded = certificate.check(draw_space(60, 8, 1, common=3.0)[0])
    assert crowded.answer == "shifted: recalibrate"
    assert crowded.shifted
    assert crowded.moved < 0
    assert crowded.shift == pytest.approx(-crowded.moved, rel=0.2)
    assert crowded.expected_far > 5 * crowded.certified_far
    assert "closer on average" in repr(crowded)
    assert certificate.check(draw_space(60, 8, 1)[0]) == same


def test_the_expected_rate_is_that_of_pairs_moved_alike(certificate):
    reference = certificate.reference
    embeddings, labels = draw_space(60, 8, 0)
    distances = pair_distances(prepare_sets(embeddings, labels))
    for threshold in (0.3, 0.6, 0.9, 1.2):
        share = float(distances.count_accepted(threshold, strictly_below=True).negative) / distances.negatives
        assert reference.far_at(threshold) == pytest.approx(share, rel=0.15)


def test_too_few_to_say(certificate):
    for count in (1, 2, 31):
        answer = certificate.check(draw_space(60, 8, 1)[0][:count])
        assert (answer.answer, answer.samples, answer.shift) == ("too few to say", count, None)
        assert not answer.shifted
    small = calibrate(*draw_space(10, 6, 0), far=0.05, resamples=5)
    assert Certificate.from_calibration(small).check(draw_space(60, 8, 1)[0]).answer == "too few to say"


@pytest.mark.parametrize(
    ("vectors", "options", "message"),
    [
        (np.ones((40, 3), np.float32), {}, "for the dimension 8, not 3"),
        (np.full((40, 8), np.nan, np.float32), {}, "NaN or infinite"),
        (np.zeros((40, 8), np.float32), {}, "length zero"),
        (np.ones((40, 8), np.float32), {"model": "xyz"}, "for the model 'abc', not 'xyz'"),
    ],
)
def test_what_cannot_be_compared(certificate, vectors, options, message):
    with pytest.raises(EquimetricError, match=message):
        certificate.check(vectors, **options)
