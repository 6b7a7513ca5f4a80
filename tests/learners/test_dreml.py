"""DREML: networks that classify by random groups of classes."""

import pytest
import torch
from making import IMAGES, VECTORS, make, make_batch, require_training_only
from small_learners import SMALL

from equimetric.errors import EquimetricError
from equimetric.runs.result import DataShape

MANY = DataShape(channels=1, vectors=False, classes=20, images=24)


def test_maps_are_balanced_and_follow_the_seed_of_the_run():
    maps = make("dreml", MANY).objective_list[0].loss.meta_classes
    assert maps.shape == (20, 3)
    for column, size in zip(maps.T, (3, 2, 3), strict=True):
        counts = column.bincount(minlength=size)
        assert len(counts) == size
        assert counts.max() - counts.min() <= 1
    assert torch.equal(make("dreml", MANY).objective_list[0].loss.meta_classes, maps)
    assert not torch.equal(make("dreml", MANY, seed=1).objective_list[0].loss.meta_classes, maps)
    assert not torch.equal(make("dreml", MANY, options={"seed": 1}).objective_list[0].loss.meta_classes, maps)
    assert any(name.endswith("meta_classes") for name in make("dreml").state_dict())


def test_each_network_classifies_its_meta_classes():
    learner = make("dreml").train()
    batch = make_batch()
    outputs = learner.outputs(batch)
    assert [rows.shape[1] for rows in outputs.values()] == [3, 2, 3]
    maps = learner.objective_list[0].loss.meta_classes
    expected = sum(
        torch.nn.functional.cross_entropy(rows, maps[batch.labels, member])
        for member, rows in enumerate(outputs.values())
    )
    torch.testing.assert_close(sum(learner.losses(outputs, batch).values()), expected)


def test_the_cost_is_that_of_three_networks():
    one = require_training_only(make("single"), make_batch())
    cost = require_training_only(make("dreml"), make_batch())
    assert (cost.forward_passes, cost.dim, cost.training_only) == (3, 8, 0)
    assert cost.parameters == 3 * (one.parameters - 1793 * 8) + 1793 * 8
    learned = require_training_only(make("dreml", options={"proxies": "learned"}), make_batch())
    assert learned.training_only == 9 + 4 + 9


@pytest.mark.parametrize(("shape", "model"), [(VECTORS, {}), (IMAGES, {"frozen": True})])
def test_on_features_members_are_slices_of_one_head(shape, model):
    learner = make("dreml", shape, model=model)
    assert learner.forward_passes == 1
    assert [rows.shape[1] for rows in learner.members(learner.outputs(make_batch(shape))).values()] == [3, 2, 3]


def test_another_method_is_refused(monkeypatch):
    monkeypatch.delitem(SMALL, "dreml")
    with pytest.raises(EquimetricError, match="set method = 'dreml'"):
        make("dreml", method="contrastive")
