import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.report import GalleryRow


def test_validation_keeps_finite_values_of_one_metric_in_order_of_steps(run):
    history = (
        {"kind": "validation", "step": 200, "map@r": 0.5},
        {"kind": "train", "step": 50, "map@r": 0.9},
        {"kind": "validation", "step": 100, "map@r": 0.4, "recall@1": 0.8},
        {"kind": "validation", "step": 300, "map@r": float("nan")},
        {"kind": "validation", "step": 400, "recall@1": 0.8},
        {"kind": "validation", "map@r": 0.7},
    )
    assert list(run("triplet", history=history).validation("map@r").items()) == [(100, 0.4), (200, 0.5)]


def test_values_leave_out_failed_runs_and_what_is_not_a_finite_number(run, study_of):
    study = study_of(
        run("triplet", 0, 0.4),
        run("triplet", 1, float("nan")),
        run("triplet", 2),
        run("triplet", 3, 0.9, status="failed"),
    )
    assert study.values("triplet", "map@r") == (0.4,)


def test_a_study_without_runs_is_an_error(study_of):
    with pytest.raises(EquimetricError, match="no runs"):
        study_of()


def test_one_seed_is_not_counted_twice(run, study_of):
    with pytest.raises(EquimetricError, match="'triplet' has more than one run with seed 7"):
        study_of(run("triplet", 7, 0.4), run("triplet", 7, 0.5))


def test_a_method_is_trained_or_a_baseline(run, study_of):
    with pytest.raises(EquimetricError, match="both trained and baseline"):
        study_of(run("triplet", 0, 0.4), run("triplet", 1, 0.5, kind="baseline"))


def test_a_misspelt_primary_metric_names_the_nearest(run, study_of):
    with pytest.raises(EquimetricError, match="did you mean 'map@r'"):
        study_of(run("triplet", 0, 0.4), primary_metric="map@R")


def test_a_gallery_of_an_unknown_method_is_an_error(run, study_of):
    with pytest.raises(EquimetricError, match="did you mean 'triplet'"):
        study_of(run("triplet", 0, 0.4), galleries={"triplett": ()})


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((1, 4, 4), dtype=np.float32),
        np.zeros((4, 4), dtype=np.uint8),
        np.zeros((4, 4, 3), dtype=np.uint8),
        np.zeros((1, 0, 4), dtype=np.uint8),
    ],
)
def test_a_gallery_image_must_be_bytes_with_channels_first(image, picture):
    with pytest.raises(EquimetricError, match="uint8 array of shape"):
        GalleryRow(picture(), "query", ((image, "neighbour", True),))
