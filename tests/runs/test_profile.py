"""What a run stores for a report is what the Python API says of its embeddings."""

import numpy as np
import pytest
import torch

from equimetric.calibration import calibrate
from equimetric.evaluation.threshold_profile import threshold_profile
from equimetric.runs.configuration import EvaluationConfig
from equimetric.runs.evaluation import NEIGHBOURS, LabelledEmbeddings, evaluate_part
from equimetric.runs.folder import RunFolder
from equimetric.runs.profile import RunProfile, profile_part


@pytest.fixture(scope="module")
def labelled():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40).repeat_interleave(8)
    embeddings = torch.randn(40, 8, generator=generator)[labels] + 0.6 * torch.randn(320, 8, generator=generator)
    return LabelledEmbeddings(embeddings, labels, torch.arange(320) + 50, None, None, tuple(map(str, range(40))))


@pytest.fixture(scope="module")
def profile(labelled):
    config = EvaluationConfig()
    return profile_part(labelled, evaluate_part(labelled, config, neighbours=NEIGHBOURS), config)


def test_thresholds_and_certificate_are_those_of_the_api(labelled, profile):
    expected = threshold_profile(labelled.embeddings, labelled.labels)
    np.testing.assert_array_equal(profile.thresholds.negative, expected.negative)
    certificate = calibrate(labelled.embeddings, labelled.labels, far=profile.certified.target_far, resamples=2)
    assert profile.certified.threshold == pytest.approx(certificate.threshold, abs=1e-12)
    assert profile.certified.far == pytest.approx(certificate.fitted.far, abs=1e-12)
    assert profile.certified.frr == pytest.approx(certificate.fitted.frr, abs=1e-12)
    assert profile.certified.far_bound == pytest.approx(certificate.new_classes.far, abs=1e-12)
    counts = profile.certified.counts
    assert counts.thresholds.tolist() == [profile.certified.threshold]
    assert counts.far[0] == pytest.approx(profile.certified.far, abs=1e-12)
    assert counts.class_negative.sum() == 2 * counts.negative[0]


def test_nearest_is_the_distance_of_the_nearest_neighbour(labelled, profile):
    unit = torch.nn.functional.normalize(labelled.embeddings.double())
    distance = torch.cdist(unit, unit).fill_diagonal_(9).min(dim=1).values
    np.testing.assert_allclose(profile.nearest, distance, atol=1e-5)


def test_map_has_whole_classes_by_their_rows(labelled, profile):
    assert profile.map.places.shape == (len(profile.map.rows), 2)
    kept = labelled.labels[torch.from_numpy(profile.map.rows) - 50]
    assert (kept.bincount()[kept.unique()] == 8).all()


def test_profile_is_stored_and_checked(tmp_path, profile):
    run = RunFolder(tmp_path)
    assert run.profile() is None
    run.write_profile(profile.arrays())
    again = RunProfile.from_arrays(run.profile())
    assert again.certified == profile.certified
    np.testing.assert_array_equal(again.thresholds.class_negative, profile.thresholds.class_negative)
    np.testing.assert_array_equal(again.map.places, profile.map.places)
    np.testing.assert_array_equal(again.certified.counts.class_negative, profile.certified.counts.class_negative)
    assert RunProfile.from_arrays({}).is_empty


def test_profiles_of_older_runs_have_no_counts_at_the_certified_threshold(profile):
    arrays = {key: array for key, array in profile.arrays().items() if not key.startswith("at_certified.")}
    assert len(arrays) < len(profile.arrays())
    old = RunProfile.from_arrays(arrays)
    assert old.certified == profile.certified
    assert old.certified.counts is None


def test_profiles_of_older_runs_call_the_target_wanted(profile):
    arrays = profile.arrays()
    arrays["certified.wanted"] = arrays.pop("certified.target_far")
    assert RunProfile.from_arrays(arrays).certified == profile.certified
