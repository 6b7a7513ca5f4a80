"""OPIS and ε-OPIS: of classes, of data sets, and estimated from a sample."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import Consistency, evaluate
from equimetric.evaluation.engine import pair_distances as distances_module
from equimetric.evaluation.metrics.consistency import threshold_consistency
from equimetric.evaluation.metrics.utility_curves import utility

CASES = json.loads((Path(__file__).parents[1] / "worked_values/thresholds.json").read_text(encoding="utf-8"))


def space(samples=120, classes=6, seed=0, dtype=torch.float64, dimension=4):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dimension, generator=generator, dtype=dtype)
    labels = torch.arange(samples) % classes
    spread = 0.3 + torch.rand(classes, 1, generator=generator, dtype=dtype)
    return centres[labels] + spread[labels] * torch.randn(samples, dimension, generator=generator, dtype=dtype), labels


def opis_by_definition(groups, far, epsilon, c=1.0, points=101, given=None, rate="both"):
    """Two loops over the pairs of each (positives, negatives), one over thresholds, plain numbers.

    `groups` lists, for each member, its positive and its negative distances, and at last all negative distances.
    """
    members, negatives = groups
    low, high = given or np.quantile(negatives, far)
    step = (high - low) / (points - 1)
    curves = []
    for positive, negative in members:
        curve = []
        for k in range(points):
            threshold = low + k * step
            tpr = sum(d <= threshold for d in positive) / len(positive)
            tnr = sum(d > threshold for d in negative) / len(negative)
            both = (1 + c * c) * tnr * tpr / (c * c * tnr + tpr) if tnr + tpr > 0 else 0.0
            curve.append({"both": both, "far": tnr, "frr": tpr}[rate])
        curves.append(curve)

    def integral(values):
        return sum((a + b) / 2 * step for a, b in pairwise(values)) / (high - low)

    mean = [sum(curve[k] for curve in curves) / len(curves) for k in range(points)]
    opis = sum(integral([(u - m) ** 2 for u, m in zip(curve, mean, strict=True)]) for curve in curves) / len(curves)
    ranked = sorted(curves, key=integral)
    count = max(1, math.floor(epsilon * len(curves) + 0.5))
    best, worst = (
        [sum(curve[k] for curve in some) / count for k in range(points)] for some in (ranked[-count:], ranked[:count])
    )
    return opis, integral([(b - w) ** 2 for b, w in zip(best, worst, strict=True)])


def class_groups(embeddings, labels):
    unit = [[value / math.dist(row, [0] * len(row)) for value in row] for row in embeddings.tolist()]
    labels = labels.tolist()
    members = {label: ([], []) for label in sorted(set(labels))}
    negatives = []
    for i in range(len(unit)):
        for j in range(i):
            distance = math.dist(unit[i], unit[j])
            if labels[i] == labels[j]:
                members[labels[i]][0].append(distance)
            else:
                negatives.append(distance)
                members[labels[i]][1].append(distance)
                members[labels[j]][1].append(distance)
    return [some for some in members.values() if some[0]], negatives


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES if case["method"] == "opis"])
def test_worked_values(case):
    embeddings = torch.tensor(case["inputs"]["embeddings"], dtype=torch.float64)
    params, expected = case["params"], case["expected"]
    result = threshold_consistency(
        embeddings,
        case["inputs"]["labels"],
        calibration_far=(params["far_min"], params["far_max"]),
        calibration_points=params["grid"],
        utility_c=params["c"],
    )
    assert result.opis == pytest.approx(expected["opis"], abs=1e-9)
    assert result.epsilon_opis(params["eps"]) == pytest.approx(expected["eps_opis"], abs=1e-9)
    assert result.calibration_range == pytest.approx((expected["d_min"], expected["d_max"]), abs=1e-9)
    assert len(result.members) == expected["n_classes"]
    np.testing.assert_allclose(result.mean_utility, expected["class_mean_utility"], atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"calibration_far": (0.001, 0.3), "utility_c": 2.0},
        {"calibration_range": (0.4, 1.1), "calibration_points": 37},
    ],
)
def test_equal_to_two_plain_loops(options):
    embeddings, labels = space()
    labels[7] = 99  # a class of one, without a positive pair, is no member but its pairs are negatives
    result = threshold_consistency(embeddings, labels, **options)
    opis, epsilon_opis = opis_by_definition(
        class_groups(embeddings, labels),
        options.get("calibration_far", (1e-2, 1e-1)),
        0.34,
        options.get("utility_c", 1.0),
        options.get("calibration_points", 101),
        options.get("calibration_range"),
    )
    assert result.members == tuple(range(6))
    assert result.opis == pytest.approx(opis, abs=1e-9)
    assert result.epsilon_opis(0.34) == pytest.approx(epsilon_opis, abs=1e-9)
    assert (result.possible_error, result.standard_error()) == (0.0, 0.0)


def test_data_sets_are_members_with_the_pairs_inside_them():
    embeddings, labels = space(120, 9)
    members = np.array(["birds", "cars", "planes"])[labels.numpy() // 3]
    groups, negatives = [], []
    for name in ("birds", "cars", "planes"):
        inside = torch.from_numpy(members == name)
        of_classes, of_set = class_groups(embeddings[inside], labels[inside])
        groups.append(([d for positive, _ in of_classes for d in positive], of_set))
        negatives += of_set
    result = threshold_consistency(embeddings, labels, members=members)
    opis, epsilon_opis = opis_by_definition((groups, negatives), (1e-2, 1e-1), 0.34)
    assert result.members == ("birds", "cars", "planes")
    assert result.opis == pytest.approx(opis, abs=1e-9)
    assert result.epsilon_opis(0.34) == pytest.approx(epsilon_opis, abs=1e-9)
    assert result.calibration_range == pytest.approx(tuple(np.quantile(negatives, (1e-2, 1e-1))), abs=1e-9)
    assert evaluate(embeddings, labels, metrics=["opis"], members=members)["opis"] == pytest.approx(opis, abs=1e-9)


@pytest.mark.parametrize("rate", ["far", "frr"])
def test_one_rate_alone(rate):
    embeddings, labels = space()
    opis, epsilon_opis = opis_by_definition(class_groups(embeddings, labels), (1e-2, 1e-1), 0.34, rate=rate)
    result = threshold_consistency(embeddings, labels, rate=rate)
    assert (result.opis, result.epsilon_opis(0.34)) == pytest.approx((opis, epsilon_opis), abs=1e-9)
    names = [f"opis_{rate}", f"opis_{rate}@34%", "opis"]
    evaluated = evaluate(embeddings, labels, metrics=names)
    assert evaluated[names[0]] == pytest.approx(opis, abs=1e-9)
    assert evaluated[names[1]] == pytest.approx(epsilon_opis, abs=1e-9)
    assert evaluated["opis"] == pytest.approx(threshold_consistency(embeddings, labels).opis, abs=1e-12)
    for name in names:
        interval = evaluated.interval(name, draws=200)
        assert interval.low <= evaluated[name] <= 1.5 * interval.high
        assert interval.classes == 6
    assert f"{rate.upper()} alone" in repr(result)
    assert result.to_dict()[f"opis_{rate}"] == result.opis
    # A sample of all rows is exact.
    assert threshold_consistency(embeddings, labels, rate=rate, sample=120).opis == pytest.approx(opis, abs=1e-9)


@pytest.mark.parametrize("rate", ["far", "frr"])
def test_one_rate_of_data_sets(rate):
    embeddings, labels = space(120, 9)
    members = np.array(["birds", "cars", "planes"])[labels.numpy() // 3]
    groups, negatives = [], []
    for name in ("birds", "cars", "planes"):
        inside = torch.from_numpy(members == name)
        of_classes, of_set = class_groups(embeddings[inside], labels[inside])
        groups.append(([d for positive, _ in of_classes for d in positive], of_set))
        negatives += of_set
    opis, epsilon_opis = opis_by_definition((groups, negatives), (1e-2, 1e-1), 0.34, rate=rate)
    found = evaluate(embeddings, labels, metrics=[f"opis_{rate}", f"opis_{rate}@34%"], members=members)
    assert list(found.values()) == pytest.approx([opis, epsilon_opis], abs=1e-9)


def test_bins_agree_with_every_pair(monkeypatch):
    embeddings, labels = space(1500, 30, dtype=torch.float32, dimension=16)
    exact = threshold_consistency(embeddings, labels)
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    binned = threshold_consistency(embeddings, labels)
    assert 0 < binned.possible_error < 2e-3
    assert binned.opis == pytest.approx(exact.opis, abs=1e-6)
    assert binned.epsilon_opis() == pytest.approx(exact.epsilon_opis(), abs=1e-5)
    assert binned.calibration_range == pytest.approx(exact.calibration_range, abs=1e-5)
    wide = threshold_consistency(embeddings, labels, calibration_range=(0.2, 1.6), calibration_points=500)
    monkeypatch.undo()
    reference = threshold_consistency(embeddings, labels, calibration_range=(0.2, 1.6), calibration_points=500)
    assert wide.opis == pytest.approx(reference.opis, abs=1e-6)
    assert abs(wide.utility - reference.utility).max() <= 2 * wide.possible_error


def test_order_and_names_of_classes_change_nothing():
    embeddings, labels = space()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))
    plain = threshold_consistency(embeddings, labels)
    permuted = threshold_consistency(embeddings[order], labels[order], block_rows=13)
    named = threshold_consistency(embeddings, [f"class {9 - label}" for label in labels.tolist()])
    for other in (permuted, named):
        assert other.opis == pytest.approx(plain.opis, abs=1e-11)
        assert other.epsilon_opis(0.2) == pytest.approx(plain.epsilon_opis(0.2), abs=1e-11)
    assert list(named.worst(2)) == [f"class {9 - label}" for label in plain.worst(2)]


def test_equal_classes_are_consistent():
    """Every class has the same three points, rotated by a third of the circle: all classes are equal."""
    angles = torch.tensor([a + t for t in (0.0, 2 * math.pi / 3, 4 * math.pi / 3) for a in (0.0, 0.3, 1.1)])
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1).double()
    result = threshold_consistency(embeddings, [0] * 3 + [1] * 3 + [2] * 3, calibration_range=(0.05, 1.9))
    assert result.opis == pytest.approx(0, abs=1e-12)
    assert result.mean_utility.min() > 0.2


def test_utility():
    rates = np.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(utility(rates, rates), rates)
    np.testing.assert_allclose(utility(np.array([1.0]), np.array([0.5]), c=2.0), 5 * 0.5 / (4 * 0.5 + 1))


def test_the_estimate_states_its_error():
    embeddings, labels = space(800, 20, seed=4)
    exact = threshold_consistency(embeddings, labels)
    estimates = [threshold_consistency(embeddings, labels, sample=200, seed=seed) for seed in range(8)]
    for estimate in estimates:
        assert estimate.sampled == 200
        assert abs(estimate.opis - exact.opis) < 4 * estimate.standard_error()
        assert "200 sampled rows" in repr(estimate)
    values = np.array([estimate.opis for estimate in estimates])
    stated = np.mean([estimate.standard_error() for estimate in estimates])
    assert 0.4 < values.std(ddof=1) / stated < 2.5
    assert abs(values.mean() - exact.opis) < 2 * stated
    assert estimates[0].opis == threshold_consistency(embeddings, labels, sample=200, seed=0).opis


def test_a_sample_of_all_rows_is_exact():
    embeddings, labels = space()
    exact = threshold_consistency(embeddings, labels)
    complete = threshold_consistency(embeddings, labels, sample=len(labels))
    assert complete.opis == pytest.approx(exact.opis, abs=1e-9)
    assert complete.standard_error() == 0


def test_as_metrics_of_an_evaluation():
    embeddings, labels = space()
    result = evaluate(embeddings, labels, metrics=["opis", "opis@10%", "opis@34%"], calibration_far=(0.02, 0.2))
    direct = threshold_consistency(embeddings, labels, calibration_far=(0.02, 0.2))
    assert result["opis"] == pytest.approx(direct.opis, abs=1e-12)
    assert result["opis@10%"] == pytest.approx(direct.epsilon_opis(0.1), abs=1e-12)
    assert result["opis@34%"] == pytest.approx(direct.epsilon_opis(0.34), abs=1e-12)
    assert result.detail(Consistency).utility.shape == (6, 101)
    assert result.detail(Consistency).calibration_range == direct.calibration_range


def test_summary():
    result = threshold_consistency(*space())
    assert "OPIS" in repr(result)
    summary = json.loads(json.dumps(result.to_dict()))
    assert summary["opis"] == result.opis
    assert next(iter(result.best(1).values())) == result.mean_utility.max() == max(summary["mean_utility"].values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibration_far": (0.1, 0.01)}, "calibration_far"),
        ({"calibration_range": (1.0, 1.0)}, "calibration_range"),
        ({"calibration_points": 1}, "calibration_points"),
        ({"utility_c": 0.0}, "utility_c"),
        ({"rate": "fpr"}, "unknown rate"),
        ({"sample": 3}, "two for each class"),
        ({"members": ["one"] * 120}, "same data set"),
        ({"members": ["one"] * 119 + ["two"]}, "data set 'two'"),
        ({"members": ["a", "b"] * 60, "sample": 50}, "either members or sample"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(EquimetricError, match=message):
        threshold_consistency(*space(), **options)


def test_equal_distances_give_an_empty_range():
    with pytest.raises(EquimetricError, match=r"calibration range .* is empty"):
        threshold_consistency(torch.eye(3).repeat(3, 1), [0, 1, 2] * 3)
    with pytest.raises(EquimetricError, match=r"up to 0\.5"):
        threshold_consistency(*space()).epsilon_opis(0.8)
