"""Calibration: one threshold, its interval, its error rates on held-out classes, and its certificate."""

import json
import math

import numpy as np
import pytest
import torch

from equimetric.calibration import calibrate, data_fingerprint, threshold_interval
from equimetric.calibration.calibrate import assign_folds
from equimetric.errors import EquimetricError
from equimetric.evaluation.engine import pair_distances as distances_module
from equimetric.evaluation.engine import survey
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.metrics.roc import tar_at_far


def space(classes=40, each=8, seed=0, crowded=0):
    """Classes around random centres; the first `crowded` of them share one centre and are confused with each other."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 8, generator=generator)
    centres[:crowded] = centres[0].clone()
    labels = torch.arange(classes).repeat_interleave(each)
    return centres[labels] + 0.4 * torch.randn(classes * each, 8, generator=generator), labels


def test_the_threshold_is_that_of_all_pairs():
    embeddings, labels = space()
    result = calibrate(embeddings, labels, 1e-2, resamples=50)
    point = tar_at_far(pair_distances(prepare_sets(embeddings, labels)), 1e-2)
    assert result.threshold == point.threshold
    assert result.fitted.far == pytest.approx(point.far)
    assert 1 - result.fitted.frr == pytest.approx(point.tar)
    assert result.interval[0] <= result.threshold <= result.interval[1]


def test_the_threshold_rises_with_the_target_rate():
    embeddings, labels = space()
    results = [calibrate(embeddings, labels, far, resamples=20) for far in (2e-3, 1e-2, 5e-2, 0.3)]
    thresholds, rejected = [r.threshold for r in results], [r.held_out.frr for r in results]
    assert thresholds == sorted(thresholds)
    assert thresholds[0] < thresholds[-1]
    assert rejected == sorted(rejected, reverse=True)


@pytest.mark.parametrize("folds", [2, 3])
def test_held_out_classes_are_evaluated_at_the_threshold_of_the_others(folds):
    embeddings, labels = space()
    result = calibrate(embeddings, labels, 1e-2, folds=folds, resamples=10)
    unit = torch.nn.functional.normalize(embeddings.double(), dim=1)
    distance, same = torch.cdist(unit, unit), labels[:, None] == labels
    assert len(result.fold_thresholds) == folds
    assert set(result.classes) == set(range(40))
    fold_of_class = assign_folds(prepare_sets(embeddings, labels), folds, 0)
    accepted = negatives = rejected = positives = 0
    for fold, threshold in enumerate(result.fold_thresholds):
        inside = torch.from_numpy(fold_of_class == fold)[labels]
        fitting = pair_distances(prepare_sets(embeddings[~inside], labels[~inside]))
        assert threshold == pytest.approx(tar_at_far(fitting, 1e-2).threshold, abs=1e-6)
        for label in np.flatnonzero(fold_of_class == fold):
            mine = labels == label
            others = distance[mine][:, inside & ~mine]
            rates = result.classes[int(label)]
            assert rates.negatives == others.numel()
            assert rates.far == pytest.approx((others < threshold).double().mean().item(), abs=1e-9)
            pairs = distance[mine][:, mine][~torch.eye(8, dtype=torch.bool)]
            assert rates.frr == pytest.approx((pairs >= threshold).double().mean().item(), abs=1e-9)
        upper = torch.ones_like(same).triu(1)[inside][:, inside]
        d, s = distance[inside][:, inside][upper], same[inside][:, inside][upper]
        accepted, negatives = accepted + int((d[~s] < threshold).sum()), negatives + int((~s).sum())
        rejected, positives = rejected + int((d[s] >= threshold).sum()), positives + int(s.sum())
    assert (result.held_out.negatives, result.held_out.positives) == (negatives, positives)
    assert result.held_out.far == pytest.approx(accepted / negatives, abs=1e-9)
    assert result.held_out.frr == pytest.approx(rejected / positives, abs=1e-9)


def test_a_class_close_to_all_others_is_named():
    """Classes in orthogonal directions with one in common, and a class of that common one alone."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40).repeat_interleave(12)
    embeddings = torch.eye(40)[labels] + 0.15 + 0.12 * torch.randn(480, 40, generator=generator)
    embeddings[labels == 7] -= torch.eye(40)[7]
    names = [f"class {label:02}" for label in labels.tolist()]
    result = calibrate(embeddings, names, 1e-2, resamples=10)
    assert list(result.violations) == list(result.worst(1)) == ["class 07"]
    assert set(result.violations) <= set(result.exceedances)
    assert all(rates.far > rates.far_bound > 1e-2 for rates in result.violations.values())
    assert "1 of them with 95% confidence: class 07" in repr(result)


def test_a_class_confused_with_one_other_is_above_the_rate_and_not_named():
    """One of thirty other classes is no evidence about classes at large, however many pairs it has."""
    embeddings, labels = space(60, crowded=4)
    result = calibrate(embeddings, labels, 1e-2, resamples=10)
    fold_of_class = assign_folds(prepare_sets(embeddings, labels), 2, 0)
    together = {c for c in range(4) if (fold_of_class[:4] == fold_of_class[c]).sum() > 1}
    assert together
    assert set(result.worst(len(together))) <= set(range(4))
    assert together <= set(result.exceedances)
    assert not together & set(result.violations)


def test_noise_is_no_violation():
    """All samples are random: no class is worse than another."""
    generator = torch.Generator().manual_seed(5)
    embeddings, labels = torch.randn(400, 16, generator=generator), torch.arange(400) % 20
    result = calibrate(embeddings, labels, 1e-2, resamples=10)
    assert result.exceedances
    assert not result.violations
    assert not result.held_out.violates


def test_data_sets_are_evaluated_by_the_pairs_inside_them():
    embeddings, labels = space(80)
    narrow = labels % 2 == 1
    embeddings[narrow] = 0.3 * embeddings[narrow] + torch.ones(8)  # its classes are close to each other
    members = np.where(narrow.numpy(), "narrow", "wide")
    result = calibrate(embeddings, labels, 2e-2, members=members, resamples=10)
    assert set(result.data_sets) == {"narrow", "wide"}
    assert list(result.data_set_violations) == ["narrow"]
    assert result.data_sets["narrow"].far > 2e-2 > result.data_sets["wide"].far
    assert "narrow" in repr(result)


def test_the_interval_covers_the_threshold_of_the_population():
    population = [tar_at_far(pair_distances(prepare_sets(*space(1000, 2, seed))), 2e-2).threshold for seed in (98, 99)]
    truth = sum(population) / 2
    results = [calibrate(*space(60, 4, seed), 2e-2, resamples=200) for seed in range(20)]
    covered = [low <= truth <= high for low, high in (result.interval for result in results)]
    assert sum(covered) >= 16
    assert all(high - low < 0.25 for low, high in (result.interval for result in results))


def test_first_order_resampling_agrees_with_resampled_pairs(monkeypatch):
    embeddings, labels = space(150, 4)
    pairs = calibrate(embeddings, labels, 2e-2)
    monkeypatch.setattr(threshold_interval, "MIN_SEARCHED_FACTOR", 1e9)
    monkeypatch.setattr(threshold_interval, "_from_pairs", None)
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    monkeypatch.setattr(survey, "CLOSEST_KEPT", 1)
    first_order = calibrate(embeddings, labels, 2e-2)
    assert first_order.threshold == pytest.approx(pairs.threshold, abs=1e-4)
    width = pairs.interval[1] - pairs.interval[0]
    np.testing.assert_allclose(first_order.interval, pairs.interval, atol=0.35 * width)
    assert pairs.certificate()["threshold_interval_from"] == "pairs"
    assert first_order.certificate()["threshold_interval_from"] == "class counts"


def test_too_few_pairs_say_how_many_are_needed():
    embeddings, labels = space(10, 4)
    with pytest.raises(
        EquimetricError, match=r"at least 100000 negative pairs.* there are 720 among 40 samples"
    ) as error:
        calibrate(embeddings, labels, 1e-4)
    times = math.ceil(10 * math.sqrt(100000 / 720)) / 10
    assert f"about {times:g} times as many samples" in str(error.value)
    with pytest.raises(EquimetricError, match="because one of 2 folds of the classes is held out"):
        calibrate(embeddings, labels, 10 / 600)


def test_certificate(tmp_path):
    embeddings, labels = space(crowded=3)
    result = calibrate(embeddings, labels, 1e-2, resamples=20, seed=7)
    file = tmp_path / "folder" / "certificate.json"
    result.save(file)
    read = json.loads(file.read_text(encoding="utf-8"))
    assert read == json.loads(json.dumps(result.certificate()))
    assert read["schema"] == "equimetric.calibration/3"
    assert read["threshold"] == result.threshold
    assert read["data"] == {
        "sha256": data_fingerprint(embeddings, labels),
        "samples": 320,
        "dimension": 8,
        "classes": 40,
    }
    assert (read["options"]["seed"], read["options"]["folds"]) == (7, 2)
    assert [entry["name"] for entry in read["violations"]] == list(result.violations)
    again = calibrate(embeddings, labels, 1e-2, resamples=20, seed=7)
    assert again.certificate() == result.certificate()
    assert calibrate(embeddings, labels, 1e-2, resamples=20, seed=8).certificate() != result.certificate()


def test_the_fingerprint_changes_with_the_data():
    embeddings, labels = space(4, 2)
    fingerprint = data_fingerprint(embeddings, labels)
    assert fingerprint == data_fingerprint(embeddings.numpy().copy(), labels.numpy().astype(np.int32))
    changed = embeddings.clone()
    changed[3, 2] += 1e-6
    others = [
        data_fingerprint(changed, labels),
        data_fingerprint(embeddings.double(), labels),
        data_fingerprint(embeddings, labels.flip(0)),
        data_fingerprint(embeddings, [str(label) for label in labels.tolist()]),
        data_fingerprint(embeddings.view(8, 8)[:, :4].contiguous(), labels),
    ]
    assert len({fingerprint, *others}) == 6


def test_euclidean_distances_are_not_normalised():
    embeddings, labels = space()
    result = calibrate(embeddings, labels, 1e-2, geometry="euclidean", resamples=10)
    longer = calibrate(10 * embeddings, labels, 1e-2, geometry="euclidean", resamples=10)
    assert longer.threshold == pytest.approx(10 * result.threshold, rel=1e-5)
    assert calibrate(10 * embeddings, labels, 1e-2, resamples=10).threshold == pytest.approx(
        calibrate(embeddings, labels, 1e-2, resamples=10).threshold, rel=1e-5
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"far": 0.0}, "between 0 and 1"),
        ({"geometry": "dot"}, "geometry"),
        ({"folds": 1}, "at least 2"),
        ({"folds": 30}, "30 folds"),
        ({"resamples": 0}, "resamples"),
        ({"confidence": 95}, "confidence"),
        ({"members": ["a"]}, "members"),
        ({"labels": [0] * 320}, "same class"),
        ({"labels": list(range(320))}, "no query has"),
        ({"embeddings": torch.full((320, 8), math.nan)}, "NaN"),
    ],
)
def test_bad_input_is_refused(options, message):
    embeddings, labels = space()
    given = {"embeddings": embeddings, "labels": labels, "far": 1e-2, "resamples": 5}
    with pytest.raises(EquimetricError, match=message):
        calibrate(**(given | options))
