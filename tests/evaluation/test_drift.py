"""New embeddings are as certified, shifted, or too few; chance alone hardly ever raises an alarm."""

import numpy as np
import pytest

from equimetric.calibration import Certificate, calibrate, drift
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


STRUCTURES = [(150, 1), (50, 3), (15, 10), (5, 30), (1, 150)]
"""Numbers of classes and of images per class of some 150 new images, where 8 images per class were calibrated."""


def reference_of(embeddings, labels, geometry="cosine"):
    """What is compared with, and the options of a check."""
    sets = prepare_sets(embeddings, labels, geometry=geometry)
    distances = pair_distances(sets)
    threshold = float(distances.negative_distance(distances.negatives // 100))
    options = {"geometry": geometry, "threshold": threshold, "certified_far": 1e-2, "seed": 0}
    return drift_reference(sets, distances, 0), options


def alarms_of(reference, options, embeddings, labels):
    """Without labels, with the number of classes, with labels."""
    known = {"classes": len(set(labels.tolist()))}
    return [check_drift(reference, embeddings, **options, **k).shifted for k in ({}, known, {"labels": labels})]


def shares_of_alarms(structures, draws, geometry="cosine", calibrated=(40, 8), **changes):
    """How often new draws raise an alarm, by structure and by what is known of the classes."""
    alarms = np.zeros((len(structures), 3))
    for seed in range(draws):
        reference, options = reference_of(*draw_space(*calibrated, (seed, 0)), geometry)
        for row, structure in enumerate(structures):
            alarms[row] += alarms_of(reference, options, *draw_space(*structure, (seed, 1 + row), **changes))
    return alarms / draws


@pytest.fixture
def no_power(monkeypatch):
    """Without the smallest visible shifts, which take most of the time."""
    monkeypatch.setattr(drift, "_visible", lambda *_: (None, 0.1))


@pytest.mark.parametrize("geometry", ["cosine", "euclidean"])
@pytest.mark.usefixtures("no_power")
def test_no_alarm_whatever_the_number_of_images_per_class(geometry):
    """Of 6 draws at a rate of 1 % two or more alarms of one kind have a probability of 0.15 %."""
    assert (shares_of_alarms(STRUCTURES, 6, geometry) <= 1 / 6).all()


@pytest.mark.usefixtures("no_power")
def test_alarms_after_a_shift():
    unlabelled, classes, labels = shares_of_alarms([(150, 2)], 6, common=3.0)[0]
    assert classes == labels == 1
    assert unlabelled <= classes


@pytest.mark.slow
@pytest.mark.usefixtures("no_power")
@pytest.mark.parametrize("calibrated", [(20, 10), (40, 8), (100, 5)])
def test_false_alarms_in_three_hundred_draws(calibrated):
    """At a rate of 1 %, nine alarms or more in 300 draws have a probability of 0.3 %."""
    assert (shares_of_alarms(STRUCTURES, 300, calibrated=calibrated) <= 8 / 300).all()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    file = tmp_path_factory.mktemp("drift") / "certificate.json"
    calibrate(*draw_space(60, 8, 0), far=1e-2, resamples=10, model="abc").save(file)
    return Certificate.load(file)


def test_the_answer_has_the_size_of_the_shift_and_the_rate_to_expect(certificate):
    embeddings, labels = draw_space(60, 8, 1)
    same = certificate.check(embeddings, labels)
    assert same.answer == "as certified"
    assert same.change < 1
    assert same.certified_far == certificate.fitted.far
    assert (same.labelled, same.classes, same.compared) == (True, 60, 480)
    assert certificate.check(embeddings, labels) == same
    crowded = certificate.check(*draw_space(60, 8, 1, common=3.0))
    assert crowded.answer == "shifted: recalibrate"
    assert crowded.shifted
    assert crowded.change > 1
    assert crowded.moved < 0
    assert crowded.expected_far > 5 * crowded.certified_far
    assert "closer" in repr(crowded)


def test_a_check_says_which_shift_it_would_see_and_sees_it(certificate):
    """Spaces closer by twice the visible shift raise an alarm; more images see smaller shifts."""
    check = certificate.check(*draw_space(60, 8, 1))
    few = certificate.check(*draw_space(15, 8, 1))
    assert 0 < check.visible_distance < few.visible_distance
    assert 0 < check.visible_mean < few.visible_mean
    assert check.visible_far > check.certified_far
    assert f"all distances smaller by {check.visible_distance:.2g}" in repr(check)
    moved = 0
    for seed in range(6):
        embeddings, labels = draw_space(60, 8, 100 + seed)
        unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
        direction = np.random.default_rng(seed).normal(size=8)
        shifted = unit + 1.5 * check.visible_mean * direction / np.linalg.norm(direction)
        moved += certificate.check(shifted.astype(np.float32), labels).shifted
    assert moved >= 4


def test_without_labels_the_least_number_of_classes_makes_a_shift_visible(certificate):
    embeddings, _ = draw_space(60, 3, 1, common=3.0)
    unknown, known = certificate.check(embeddings), certificate.check(embeddings, classes=60)
    assert known.shifted
    assert not unknown.shifted
    assert 1 < unknown.shifted_from <= 60
    assert certificate.check(embeddings, classes=min(60, 2 * unknown.shifted_from)).shifted
    assert f"{unknown.shifted_from} or more classes" in repr(unknown)


def test_the_expected_rate_is_that_of_pairs_moved_alike(certificate):
    reference = certificate.reference
    embeddings, labels = draw_space(60, 8, 0)
    distances = pair_distances(prepare_sets(embeddings, labels))
    for threshold in (0.3, 0.6, 0.9, 1.2):
        share = float(distances.count_accepted(threshold, strictly_below=True).negative) / distances.negatives
        assert reference.far_at(threshold) == pytest.approx(share, rel=0.15)


def test_too_few_to_say(certificate):
    for count in (1, 2, 5):
        answer = certificate.check(draw_space(60, 8, 1)[0][:count])
        assert (answer.answer, answer.samples, answer.visible_distance) == ("too few to say", count, None)
        assert not answer.shifted
    small = calibrate(*draw_space(9, 6, 0), far=0.05, resamples=5)
    assert Certificate.from_calibration(small).check(draw_space(60, 8, 1)[0]).answer == "too few to say"


@pytest.mark.parametrize(
    ("vectors", "options", "message"),
    [
        (np.ones((40, 3), np.float32), {}, "for the dimension 8, not 3"),
        (np.full((40, 8), np.nan, np.float32), {}, "NaN or infinite"),
        (np.zeros((40, 8), np.float32), {}, "length zero"),
        (np.ones((40, 8), np.float32), {"labels": [1, 2]}, "exactly one label for each"),
        (np.ones((40, 8), np.float32), {"classes": 0}, "least number of classes"),
        (np.ones((40, 8), np.float32), {"model": "xyz"}, "for the model 'abc', not 'xyz'"),
    ],
)
def test_what_cannot_be_compared(certificate, vectors, options, message):
    with pytest.raises(EquimetricError, match=message):
        certificate.check(vectors, **options)
