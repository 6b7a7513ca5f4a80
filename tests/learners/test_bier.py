"""BIER and A-BIER: boosted slices, what keeps them unlike, and how they are aggregated."""

from itertools import pairwise

import pytest
import torch
from making import make, make_batch, require_training_only

from equimetric.errors import EquimetricError
from equimetric.geometry import unit


def test_later_members_are_larger():
    sizes = list(make("bier", model={"dim": 512}).slices.sizes.values())
    assert sizes == [96, 160, 256]
    sizes = list(make("bier", model={"dim": 64}).slices.sizes.values())
    assert all(one < other for one, other in pairwise(sizes))
    assert sum(sizes) == 64


@pytest.mark.parametrize("name", ["bier", "a_bier"])
def test_only_the_head_learns_from_the_diversity(name):
    learner = make(name).train()
    batch = make_batch()
    terms = learner.losses(learner.outputs(batch), batch)
    assert len(terms) == 3
    (terms["diversity"] + terms["rows of the head"]).backward()
    assert learner.linear.weight.grad.abs().max() > 0
    assert learner.linear.bias.grad.abs().max() == 0
    assert all(parameter.grad is None for parameter in learner.network.backbone.parameters())


def test_the_terms_are_those_of_the_loss_on_outputs_without_bias():
    learner = make("bier", options={"lambda_div": 0.7, "lambda_w": 0.3}).train()
    batch = make_batch()
    outputs = learner.outputs(batch)
    terms = learner.losses(outputs, batch)
    plain = make("single", method="bier", options={"diversity": "none"}).objective
    torch.testing.assert_close(next(iter(terms.values())), plain(outputs["embedding"], batch.labels))
    weight = learner.linear.weight
    members = (learner.network.features(batch.images) @ weight.T).split(learner.loss.sizes, 1)
    activations = sum(
        (members[i][:, :, None] * members[j][:, None, :]).square().mean() for i, j in ((0, 1), (0, 2), (1, 2))
    )
    torch.testing.assert_close(terms["diversity"], 0.7 * activations)
    rows = sum((own.square().sum(1) - 1).square().mean() for own in weight.split(learner.loss.sizes))
    torch.testing.assert_close(terms["rows of the head"], 0.7 * 0.3 * rows)


def test_without_diversity_there_is_one_term():
    learner = make("bier", options={"diversity": "none"}).train()
    batch = make_batch()
    outputs = learner.outputs(batch)
    assert list(outputs) == ["embedding"]
    assert len(learner.losses(outputs, batch)) == 1


@pytest.mark.parametrize(
    ("weights", "squares"), [("size", [(2 / 8) ** 2, (2 / 8) ** 2, (4 / 8) ** 2]), ("boosting", [1 / 6, 2 / 6, 3 / 6])]
)
def test_the_cosine_is_the_mean_of_the_members_by_the_squares_of_the_declared_weights(weights, squares):
    learner = make("bier", learner={"options": {"weights": weights}}).eval()
    outputs = learner.outputs(make_batch())
    members = list(learner.members(outputs).values())
    assert [member.shape[1] for member in members] == [2, 2, 4]
    expected = sum(square * member @ member.T for square, member in zip(squares, members, strict=True)) / sum(squares)
    whole = learner.embedding(outputs)
    torch.testing.assert_close(whole @ whole.T, expected)
    torch.testing.assert_close(members[0], unit(outputs["embedding"][:, :2]))


def test_regressors_are_a_group_of_their_own_and_only_trained():
    learner = make("a_bier")
    groups = {name: sum(one.numel() for one in group) for name, group in learner.parameter_groups().items()}
    regressors = (2 * 5 + 5 + 5 * 2 + 2) + 2 * (4 * 5 + 5 + 5 * 2 + 2)
    assert groups["adversary"] == regressors
    cost = require_training_only(learner, make_batch())
    assert (cost.training_only, cost.forward_passes, cost.dim) == (regressors, 1, 8)


def test_wrong_configurations_are_refused():
    with pytest.raises(EquimetricError, match="set method = 'bier'"):
        make("bier", method="contrastive")
    with pytest.raises(EquimetricError, match="learner 'bier' has diversity 'none' or 'activation', not 'adversarial'"):
        make("bier", method="a_bier")
    with pytest.raises(EquimetricError, match="learner 'a_bier' has diversity 'adversarial', not 'activation'"):
        make("a_bier", method="bier")
    with pytest.raises(EquimetricError, match="weights must be 'size' or 'boosting', got 'sizes'"):
        make("bier", learner={"options": {"weights": "sizes"}})
