"""ROC, AUC, EER, TAR at FAR, and the rates of single classes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.metrics.roc import (
    Roc,
    area_under_roc,
    class_rates,
    equal_error_rate,
    far_and_frr,
    roc,
    tar_at_far,
)
from equimetric.evaluation.metrics.verification import AcceptRate, DistanceHistogram

CASES = json.loads((Path(__file__).parents[1] / "worked_values/thresholds.json").read_text(encoding="utf-8"))


def cases(method):
    return [pytest.param(case, id=case["id"]) for case in CASES if case["method"] == method]


def distances_of(case):
    embeddings = torch.tensor(case["inputs"]["embeddings"], dtype=torch.float64)
    return pair_distances(prepare_sets(embeddings, case["inputs"]["labels"]))


def space(samples=200, classes=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    return centres[labels] + torch.randn(samples, 6, generator=generator, dtype=torch.float64), labels


@pytest.mark.parametrize("case", cases("verification"))
def test_worked_values(case):
    distances, expected = distances_of(case), case["expected"]
    assert area_under_roc(distances) == pytest.approx(expected["auc"], abs=1e-9)
    assert equal_error_rate(distances)[0] == pytest.approx(expected["eer"], abs=1e-9)
    for far, wanted in expected["tar_at_far"].items():
        point = tar_at_far(distances, float(far))
        assert point.tar == pytest.approx(wanted["tar"], abs=1e-9)
        assert point.far == pytest.approx(wanted["actual_far"], abs=1e-9)
        assert point.threshold == pytest.approx(wanted["threshold"], abs=1e-9)
    negative = distances.negative_distance(np.arange(distances.negatives))
    np.testing.assert_allclose(negative, expected["negative_distances"], atol=1e-9)
    distinct = np.unique(np.round(expected["positive_distances"] + expected["negative_distances"], 9))
    np.testing.assert_allclose(np.unique(np.round(roc(distances).threshold, 9)), distinct, atol=1e-8)


@pytest.mark.parametrize("case", cases("class_far_frr"))
def test_worked_rates_of_classes(case):
    of_classes = class_rates(distances_of(case), case["params"]["threshold"])
    for number, wanted in case["expected"].items():
        assert of_classes.far[int(number)] == pytest.approx(wanted["far"], abs=1e-9)
        assert of_classes.frr[int(number)] == pytest.approx(wanted["frr"], abs=1e-9)


@pytest.mark.parametrize("geometry", ["euclidean", "hamming"])
def test_roc_and_auc_agree_with_scikit_learn(geometry):
    """Six bits have seven Hamming distances: nearly all pairs tie."""
    embeddings, labels = space()
    distances = pair_distances(prepare_sets(embeddings, labels, geometry=geometry))
    first, second = torch.triu_indices(len(labels), len(labels), offset=1)
    if geometry == "euclidean":
        distance = (embeddings[first] - embeddings[second]).norm(dim=1).numpy()
    else:
        distance = ((embeddings[first] > 0) != (embeddings[second] > 0)).sum(dim=1).double().numpy()
    same = (labels[first] == labels[second]).numpy()
    assert area_under_roc(distances) == pytest.approx(roc_auc_score(same, -distance), abs=1e-12)
    far, tar, _ = roc_curve(same, -distance, drop_intermediate=False)
    curve = roc(distances)
    np.testing.assert_allclose(curve.far, far[1:], atol=1e-12)
    np.testing.assert_allclose(curve.tar, tar[1:], atol=1e-12)


def test_equal_error_rate_by_definition():
    distances = pair_distances(prepare_sets(*space(60, 4)))
    curve = roc(distances)
    points = [(0.0, 1.0), *zip(curve.far, 1 - curve.tar, strict=True)]
    after = next(i for i, (far, frr) in enumerate(points) if far >= frr)
    (far0, frr0), (far1, frr1) = points[after - 1], points[after]
    share = (frr0 - far0) / ((frr0 - far0) + (far1 - frr1))
    error, threshold = equal_error_rate(distances)
    assert error == pytest.approx(far0 + share * (far1 - far0), abs=1e-12)
    assert threshold == curve.threshold[after - 1]


def test_tar_at_far_never_accepts_more_than_allowed():
    distances = pair_distances(prepare_sets(*space()))
    before = -math.inf
    for far in (0.0, 1e-3, 0.0123, 0.2, 0.999):
        point = tar_at_far(distances, far)
        assert point.far <= far
        assert point.far == pytest.approx(math.floor(far * distances.negatives + 1e-9) / distances.negatives)
        assert point.threshold > before
        before = point.threshold
    everything = tar_at_far(distances, 1.0)
    assert (everything.threshold, everything.far, everything.tar) == (math.inf, 1.0, 1.0)
    with pytest.raises(EquimetricError, match="between 0 and 1"):
        tar_at_far(distances, 1.5)


def test_rates_are_weighted_means_of_class_rates():
    distances = pair_distances(prepare_sets(*space()))
    far, frr = far_and_frr(distances, 0.8)
    of_classes = class_rates(distances, 0.8)
    assert far == pytest.approx(np.average(of_classes.far, weights=distances.negatives_by_class), abs=1e-12)
    assert frr == pytest.approx(np.average(of_classes.frr, weights=distances.positives_by_class), abs=1e-12)


def test_a_class_without_positive_pairs_has_no_frr():
    embeddings, _ = space(5)
    of_classes = class_rates(pair_distances(prepare_sets(embeddings, [0, 0, 1, 1, 2])), 1.0)
    assert np.isnan(of_classes.frr).tolist() == [False, False, True]
    assert not np.isnan(of_classes.far).any()


def test_as_metrics_of_an_evaluation():
    embeddings, labels = space()
    names = ["auc", "eer", "tar@far=1e-2", "far@distance=0.8", "frr@distance=0.8"]
    result = evaluate(embeddings, labels, metrics=names)
    distances = pair_distances(prepare_sets(embeddings, labels))
    point = tar_at_far(distances, 1e-2)
    expected = [area_under_roc(distances), equal_error_rate(distances)[0], point.tar, *far_and_frr(distances, 0.8)]
    assert [result[name] for name in names] == pytest.approx(expected, abs=1e-12)
    assert result.detail(AcceptRate, "tar@far=1e-2").threshold == point.threshold
    curve = result.detail(Roc)
    assert (curve.far[-1], curve.tar[-1]) == (1.0, 1.0)
    assert (np.diff(curve.far) >= 0).all()
    counts = result.detail(DistanceHistogram)
    assert counts.positive.sum() == distances.positives
    assert counts.negative.sum() == distances.negatives
