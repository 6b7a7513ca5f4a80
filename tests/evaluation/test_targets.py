"""What a threshold is chosen for: a false accept rate, a false reject rate, or the least cost."""

import numpy as np
import pytest
import torch

from equimetric.calibration import calibrate
from equimetric.calibration.targets import Costs, FalseAccepts, FalseRejects, make_target, read_target
from equimetric.errors import EquimetricError
from equimetric.evaluation.engine import pair_distances as distances_module
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances


def space(classes=40, each=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    noise = torch.randn(classes * each, 8, generator=generator)
    return torch.randn(classes, 8, generator=generator)[labels] + 0.5 * noise, labels


@pytest.fixture(scope="module")
def distances():
    """Those of `space()`, by definition: positive and negative, ascending."""
    embeddings, labels = space()
    unit = torch.nn.functional.normalize(embeddings.double())
    first, second = torch.triu_indices(320, 320, 1)
    distance = (unit[first] - unit[second]).norm(dim=1).numpy()
    same = (labels[first] == labels[second]).numpy()
    return np.sort(distance[same]), np.sort(distance[~same])


@pytest.mark.parametrize("frr", [0.02, 0.1, 0.5])
def test_as_few_negatives_as_a_false_reject_rate_allows(distances, frr):
    positive, _ = distances
    result = calibrate(*space(), frr=frr, resamples=50)
    rejected = int(frr * len(positive))
    assert result.threshold == pytest.approx(positive[len(positive) - rejected - 1], abs=1e-6)
    assert result.fitted.frr == pytest.approx(rejected / len(positive))
    assert result.interval[0] <= result.threshold <= result.interval[1]
    assert (result.target_rate.far, result.target_rate.frr) == (None, frr)
    assert f"Calibration for FRR {frr:g}" in repr(result)


@pytest.mark.parametrize("cost", [(10, 1, 0.1), (1, 1, 0.5), (1, 30, 0.05)])
def test_no_threshold_costs_less(distances, cost):
    positive, negative = distances
    accept, reject, prior = cost
    result = calibrate(*space(), cost=cost, resamples=50)
    every = np.concatenate([positive, negative])
    far = np.searchsorted(negative, every, "right") / len(negative)
    frr = 1 - np.searchsorted(positive, every, "right") / len(positive)
    expected = prior * reject * frr + (1 - prior) * accept * far
    fitted = result.fitted
    assert prior * reject * fitted.frr + (1 - prior) * accept * fitted.far == pytest.approx(expected.min())
    assert result.threshold == pytest.approx(every[expected.argmin()], abs=1e-6)
    assert result.interval[0] <= result.threshold <= result.interval[1]
    assert result.target_rate.far == fitted.far
    assert "the least cost" in repr(result)


def test_the_interval_of_a_false_reject_rate_covers_that_of_the_population():
    truth = FalseRejects(0.1).threshold(pair_distances(prepare_sets(*space(1000, 4, 99))))
    found = [calibrate(*space(60, 4, seed), frr=0.1, resamples=200).interval for seed in range(20)]
    assert sum(low <= truth <= high for low, high in found) >= 16
    assert all(high - low < 0.25 for low, high in found)


@pytest.mark.parametrize("target", [FalseRejects(0.1), Costs(10, 1, 0.1)])
def test_counted_pairs_give_almost_the_same_threshold(monkeypatch, target):
    sets = prepare_sets(*space())
    kept = target.threshold(pair_distances(sets))
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    assert target.threshold(pair_distances(sets)) == pytest.approx(kept, abs=2e-3)


def test_one_target_at_a_time():
    assert make_target(None, None, None) == FalseAccepts(1e-3)
    assert make_target(None, None, (2, 1, 0.5)) == Costs(2, 1, 0.5)
    for target in (FalseAccepts(0.1), FalseRejects(0.2), Costs(2, 1, 0.5)):
        assert read_target(target.to_dict()) == target
    with pytest.raises(EquimetricError, match="give one of far, frr and cost"):
        calibrate(*space(), far=0.1, frr=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frr": 0}, "frr is 0.0; give a false reject rate between 0 and 1"),
        ({"frr": 1e-4}, "needs at least 100000 positive pairs"),
        ({"cost": (1, 1)}, "cost has 2 numbers"),
        ({"cost": (0, 1, 0.5)}, "both must be above 0"),
        ({"cost": (1, 1, 1)}, "the prior is 1.0"),
        ({"cost": (1e9, 1, 1e-6)}, "cheapest to reject every pair"),
        ({"cost": (1, 1e9, 1 - 1e-6)}, "cheapest to accept every pair"),
    ],
)
def test_targets_that_cannot_be_met(options, message):
    embeddings, labels = space()
    embeddings[0], embeddings[1] = embeddings[9], -embeddings[9]  # the closest pair is negative, the farthest positive
    with pytest.raises(EquimetricError, match=message) as error:
        calibrate(embeddings, labels, **options)
    assert "\n" not in str(error.value)
