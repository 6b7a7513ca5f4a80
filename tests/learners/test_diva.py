"""DiVA: four tasks, keys and their queue, weights of each query, declared aggregation."""

import pytest
import torch
from making import batch_for, configuration, make, require_training_only

from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners import LEARNERS
from equimetric.learners.diva import key_weights, weighted_info_nce
from equimetric.training import train

NAME = "diva"


@pytest.fixture
def vectors():
    generator = torch.Generator().manual_seed(0)
    return [unit(torch.randn(rows, 6, dtype=torch.float64, generator=generator)) for rows in (5, 5, 40)]


def test_the_weights_of_each_query_sum_to_1(vectors):
    queries, _, queued = vectors
    weights = key_weights(queries, queued)
    torch.testing.assert_close(weights.sum(1), torch.ones(5, dtype=torch.float64))
    assert (weights.sum(0) - 1).abs().max() > 0.1, "and not those of each key"
    distance = torch.cdist(queries, queued)
    assert (weights[distance > 1.4] == 0).all()
    bounded = distance.clamp_min(0.5)
    inverse = bounded.pow(2 - 6) * (1 - bounded.square() / 4).pow(-(6 - 3) / 2) * (distance < 1.4)
    torch.testing.assert_close(weights, inverse / inverse.sum(1, keepdim=True))


def test_the_contrast_with_keys_is_its_formula(vectors):
    queries, keys, queued = vectors
    weights = key_weights(queries, queued)
    own = ((queries * keys).sum(1) / 0.1).exp()
    others = (weights * (queries @ queued.T) / 0.1).exp().sum(1)
    expected = -(own / (own + others)).log().mean()
    torch.testing.assert_close(weighted_info_nce(3 * queries, keys, queued, 0.1), expected)
    assert weighted_info_nce(queries, keys, queued[:0], 0.1) == 0, "no key has been queued yet"


def test_keys_are_queued_in_order_and_have_no_gradient():
    learner = make(NAME, learner={"options": {"queue": 30, "rho": 10.0}})
    batch = batch_for(learner)
    outputs = learner.outputs(batch)
    assert not outputs["key"].requires_grad
    learner.losses(outputs, batch)
    torch.testing.assert_close(learner.queue.stored()[0], outputs["key"])
    learner.losses(outputs, batch)
    # The second batch fills places 24 … 29, then the oldest ones from 0 on.
    assert torch.equal(learner.queue.keys[24:], outputs["key"][:6])
    assert torch.equal(learner.queue.keys[:18], outputs["key"][6:])
    assert int(learner.queue.next) == 18


def test_the_network_of_the_keys_follows_every_step(tmp_path, monkeypatch):
    trail = []
    follow = LEARNERS[NAME].after_step

    def note(learner, step):
        before = learner.key_network.module.head.weight.clone()
        follow(learner, step)
        trail.append(
            (before, learner.network.head.weight.detach().clone(), learner.key_network.module.head.weight.clone())
        )

    monkeypatch.setattr(LEARNERS[NAME], "after_step", note)
    train(configuration(NAME), folder=tmp_path)
    assert len(trail) == 7
    for before, trained, after in trail:
        torch.testing.assert_close(after, 0.9 * before + 0.1 * trained)
    assert not torch.equal(trail[0][1], trail[-1][1])


def test_slices_have_declared_weights():
    learner = make(NAME, learner={"options": {"weights": [0.5, 1.0, 1.0, 2.0], "queue": 8}}).eval()
    outputs = learner.outputs(batch_for(learner))
    whole = learner.embedding(outputs)
    lengths = torch.stack([part.norm(dim=1) for part in whole.split(2, dim=1)], dim=1)
    expected = torch.tensor([0.5, 1.0, 1.0, 2.0], dtype=torch.float64) / 6.25**0.5
    torch.testing.assert_close(lengths, expected.expand_as(lengths))
    assert list(learner.members(outputs)) == ["discriminative", "shared", "intra", "dance"]
    with pytest.raises(EquimetricError, match="needs a weight of 0 or more for each of discriminative, shared"):
        make(NAME, learner={"options": {"weights": [1.0, 1.0]}})


def test_two_samples_of_a_class_are_too_few(tmp_path):
    with pytest.raises(EquimetricError, match=r"set batch\.samples = 3 or higher"):
        train(configuration(NAME, batch={"samples": 2}), folder=tmp_path)


def test_embeddings_ignore_what_only_training_needs():
    learner = make(NAME)
    network = sum(parameter.numel() for parameter in learner.network.parameters())
    cost = require_training_only(learner, batch_for(learner))
    regressors = 3 * ((2 + 1) * 512 + (512 + 1) * 2)
    assert cost.training_only == network + regressors, "a copy of the network and three regressors"
    assert (cost.forward_passes, cost.dim) == (1, 8)
