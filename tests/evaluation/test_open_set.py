"""AUROC and OSCR of known against unknown classes."""

import numpy as np
import pytest
import torch

from equimetric.evaluation import evaluate, evaluate_identification
from equimetric.evaluation.identification.rates import fnir_at, fpir_at
from equimetric.evaluation.metrics.open_set import LeaveOneOutValues

NAMES = ["open_auroc", "oscr"]


@pytest.fixture(scope="module")
def arrays():
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(16).repeat_interleave(8)
    centres = torch.randn(16, 6, generator=generator, dtype=torch.float64)
    return centres[labels] + 0.8 * torch.randn(len(labels), 6, generator=generator, dtype=torch.float64), labels


def compare_pairs(distance, named, stranger):
    """P(known probe, named, is nearer than a stranger) + half of the ties, over all pairs."""
    known, unknown = distance[~stranger, None], distance[stranger][None, :]
    return float((((known < unknown) + 0.5 * (known == unknown)) * named[~stranger, None]).mean())


def test_both_count_pairs_of_a_known_probe_and_a_stranger(arrays):
    result = evaluate(*arrays, metrics=NAMES)
    scores = evaluate_identification(*arrays).scores
    distance, named = scores.distance[:, 0], scores.named[:, 0]
    assert result["open_auroc"] == pytest.approx(compare_pairs(distance, np.ones_like(named), scores.stranger))
    assert result["oscr"] == pytest.approx(compare_pairs(distance, named, scores.stranger))
    assert result["oscr"] < result["open_auroc"]


@pytest.mark.parametrize("rule", [{"by": "item"}, {"by": "mean"}, {"by": "nearest", "k": 4}])
def test_oscr_is_the_area_under_its_curve(arrays, rule):
    """Open-set rank-1 rate against FPIR, at every distance that occurs."""
    value = evaluate(*arrays, metrics="oscr", identification=rule)["oscr"]
    scores = evaluate_identification(*arrays, **rule).scores
    at = np.unique(scores.distance[np.isfinite(scores.distance)])
    at = np.append(at, at[-1] + 1)
    assert value == pytest.approx(np.trapezoid(1 - fnir_at(scores, at), fpir_at(scores, at)), abs=1e-12)


def test_ties_count_half():
    """Everything at one place: whoever is known, nothing tells."""
    labels = torch.arange(6).repeat_interleave(3)
    same = torch.ones(18, 2, dtype=torch.float64)
    assert evaluate(same, labels, metrics="open_auroc")["open_auroc"] == 0.5


def test_a_space_without_errors():
    labels = torch.arange(8).repeat_interleave(3)
    noise = 1e-3 * torch.randn(24, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = evaluate(torch.eye(8, dtype=torch.float64)[labels] + noise, labels, metrics=NAMES)
    assert result["open_auroc"] == result["oscr"] == 1
    assert set(result.score_per_class["oscr"].tolist()) == {1.0}


def test_classes_average_to_the_value_where_they_are_of_one_size(arrays):
    gallery = arrays[1] < 10
    embeddings, labels = arrays
    result = evaluate(
        embeddings,
        labels,
        embeddings[gallery],
        labels[gallery],
        query_ids=torch.arange(128),
        gallery_ids=torch.arange(128)[gallery],
        metrics=NAMES,
    )
    for name in NAMES:
        scores = result.score_per_class[name]
        assert scores[10:].isnan().all()  # strangers have no score of their own
        assert float(scores[:10].mean()) == pytest.approx(result[name])


def test_values_without_each_class(arrays):
    """Each class is deleted with its probes and with its entries; what they took goes to the next identity."""
    result = evaluate(*arrays, metrics=NAMES)
    scores = evaluate_identification(*arrays).scores
    for number in range(16):
        taken = scores.nearest_class == number
        distance = np.where(taken, scores.rival_distance, scores.distance[:, 0])
        named = np.where(taken, scores.rival_named, scores.named[:, 0])
        kept = scores.probe_class != number
        expected = {"open_auroc": np.ones_like(named), "oscr": named}
        for name in NAMES:
            exact = compare_pairs(distance[kept], expected[name][kept], scores.stranger[kept])
            assert result.detail(LeaveOneOutValues, name).without[number] == pytest.approx(exact, abs=2e-3)


def test_intervals_are_as_wide_as_classes_vary():
    """Of new classes the values spread as far as the standard errors say."""
    labels = torch.arange(20).repeat_interleave(6)
    values, errors = [], []
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        space = torch.randn(20, 8, generator=generator)[labels] + 0.9 * torch.randn(120, 8, generator=generator)
        result = evaluate(space, labels, metrics=NAMES, identification={"repeats": 4})
        values.append([result[name] for name in NAMES])
        errors.append([result.interval(name, draws=200).standard_error for name in NAMES])
    assert np.mean(errors, axis=0) == pytest.approx(np.std(values, axis=0, ddof=1), rel=0.35)
