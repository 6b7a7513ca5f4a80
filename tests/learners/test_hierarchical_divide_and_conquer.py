"""Hierarchical divide and conquer: masks that split, clusters that split, a trunk that stands still."""

import pytest
import torch
from making import batch_for, configuration, make, require_training_only
from several_tasks import note_batches

from equimetric.errors import EquimetricError
from equimetric.learners.hierarchical_divide_and_conquer import Masks, split_cluster, split_clusters
from equimetric.training import train

NAME = "hierarchical_divide_and_conquer"


def test_fixed_masks_halve_the_dimensions_at_every_split():
    masks = Masks(4, 6, learned=False)
    assert masks.of(1).tolist() == [[1, 1, 1, 1, 1, 1]]
    masks.split(1)
    assert masks.of(2).tolist() == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    masks.split(2)
    assert masks.of(4).tolist() == [[1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1]]
    assert masks.penalty(4) == 0
    assert not any(parameter.requires_grad for parameter in masks.parameters())


def test_learned_masks_are_copied_and_exist_from_the_start():
    masks = Masks(4, 3, learned=True)
    assert masks.values.shape == (4, 3)
    with torch.no_grad():
        masks.values[0] = torch.tensor([1.0, -2.0, 3.0])
    masks.split(1)
    assert masks.of(2).tolist() == [[1, 0, 3], [1, 0, 3]], "both halves, after the rectifier"
    with torch.no_grad():
        masks.values[2] = torch.tensor([0.0, 5.0, 0.0])
    masks.split(2)
    assert masks.of(4).tolist() == [[1, 0, 3], [1, 0, 3], [0, 5, 0], [0, 5, 0]]


def test_the_penalty_is_the_mean_cosine_and_makes_masks_orthogonal():
    masks = Masks(2, 4, learned=True).double()
    with torch.no_grad():
        masks.values.copy_(torch.tensor([[1.0, 1.0, 0.5, 0.2], [0.2, 0.6, 1.0, 1.0]]))
    cosine = torch.nn.functional.cosine_similarity(masks.values[0], masks.values[1], dim=0)
    torch.testing.assert_close(masks.penalty(2), cosine)
    assert masks.penalty(1) == 0
    optimizer = torch.optim.SGD(masks.parameters(), lr=1.0)
    for _ in range(300):
        optimizer.zero_grad()
        masks.penalty(2).backward()
        optimizer.step()
    assert masks.penalty(2) < 0.05


def test_a_split_cluster_has_two_classes_on_both_sides():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(40, 2, generator=generator) + torch.tensor([[10.0, 0.0], [-10.0, 0.0]]).repeat(20, 1)
    labels = torch.arange(40) // 2 % 4
    half = split_cluster(points, labels, seed=0)
    assert (half[::2] == half[0]).all()
    assert (half[1::2] == 1 - half[0]).all()
    clusters = torch.arange(40) // 20
    found = split_clusters(points, labels, clusters, 2, seed=0)
    assert torch.equal(found // 2, clusters)
    assert found.unique().tolist() == [0, 1, 2, 3]


def prepared(masks="fixed"):
    """A learner after its first split, in training."""
    learner = make(NAME, learner={"options": {"clusters": 4, "masks": masks, "joint": 0.1, "weight": 0.5}}).train()
    learner.masks.split(1)
    learner.count.fill_(2)
    return learner


def test_a_batch_of_a_cluster_trains_its_half():
    learner = prepared()
    learner.step = 2
    batch = batch_for(learner, "cluster2")
    sum(learner.losses(learner.outputs(batch), batch).values()).backward()
    moved = learner.network.head.weight.grad.norm(dim=1) > 0
    assert moved.tolist() == [False] * 4 + [True] * 4
    assert any(parameter.grad is not None for parameter in learner.network.backbone.parameters())


def test_the_trunk_stands_still_after_a_split():
    learner = prepared()
    learner.step = 3
    assert learner.trunk_frozen
    batch = batch_for(learner, "cluster1")
    sum(learner.losses(learner.outputs(batch), batch).values()).backward()
    assert all(parameter.grad is None for parameter in learner.network.backbone.parameters())
    learner.step = 5
    assert not learner.trunk_frozen


def test_learned_masks_have_a_weighted_penalty():
    learner = prepared("learned")
    batch = batch_for(learner, "cluster1")
    terms = learner.losses(learner.outputs(batch), batch)
    torch.testing.assert_close(terms["orthogonality"], 0.5 * learner.masks.penalty(2))
    sum(terms.values()).backward()
    assert learner.masks.values.grad[0].norm() > 0
    learner.joint.fill_(True)
    assert "orthogonality" not in learner.losses(learner.outputs(batch), batch), "the whole embedding in the end"


def test_clusters_double_and_the_end_is_joint(tmp_path, monkeypatch):
    seen = note_batches(monkeypatch, lambda learner: (int(learner.count), bool(learner.joint), learner.drawn.clone()))
    options = {"clusters": 4, "masks": "learned", "period": 3, "joint": 0.2}
    train(configuration(NAME, learner={"options": options}, training={"steps": 15}), folder=tmp_path)
    counts = [count for _, (count, _, _) in seen]
    assert counts == [1] * 3 + [2] * 3 + [4] * 9
    assert [joint for _, (_, joint, _) in seen] == [False] * 12 + [True] * 3
    for batch, (_, _, drawn) in seen:
        assert (drawn[batch.index] == int(batch.task.removeprefix("cluster")) - 1).all()


def test_embeddings_ignore_masks():
    learner = prepared("learned")
    require_training_only(learner, batch_for(learner))
    assert list(learner.members(learner.outputs(batch_for(learner)))) == ["mask1", "mask2"]


def test_options_are_checked():
    with pytest.raises(EquimetricError, match="choose a power of two"):
        make(NAME, learner={"options": {"clusters": 6}})
    with pytest.raises(EquimetricError, match="masks must be 'fixed' or 'learned', got 'soft'"):
        make(NAME, learner={"options": {"masks": "soft"}})
