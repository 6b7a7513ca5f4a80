"""ABE: one network behind several masks."""

import pytest
import torch
from making import VECTORS, make, make_batch, require_training_only

from equimetric.errors import EquimetricError
from equimetric.learners.abe import AttentionMasks, divergence

MEMBERS = [
    [[-0.114, 0.953, 1.567], [-0.538, -0.572, 0.576], [0.885, -0.735, -0.893]],
    [[-2.08, -0.033, 1.04], [-0.66, 0.677, -0.284], [-0.972, -0.773, -0.284]],
    [[-0.471, 0.201, 0.549], [2.573, -0.697, -0.176], [0.311, 0.275, -0.864]],
]
MEMBERS[0] += [[-1.147, 0.704, 0.204], [0.185, -0.572, -0.589], [-1.128, -1.312, -1.1]]
MEMBERS[1] += [[0.146, -0.623, 0.395], [1.923, 0.363, 0.648], [-0.385, -0.663, -0.538]]
MEMBERS[2] += [[-0.391, -0.462, -0.83], [0.973, 0.884, -0.447], [-0.05, -1.785, -0.745]]


def test_the_worked_value_of_the_divergence_and_its_gradient():
    members = [torch.tensor(rows, dtype=torch.float64, requires_grad=True) for rows in MEMBERS]
    assert divergence(members).item() == pytest.approx(0.7128464242, abs=1e-9)
    assert torch.autograd.gradcheck(lambda *rows: divergence(rows, 0.9), members)
    assert divergence(members[:1]).item() == 0


def test_a_mask_has_a_value_for_every_channel_and_place():
    masks = AttentionMasks(5, 3)(torch.randn(2, 5, 4, 6))
    assert masks.shape == (2, 3, 5, 4, 6)
    assert 0 < masks.min() < masks.max() < 1


def test_every_member_is_the_rest_of_the_network_behind_its_mask():
    learner = make("abe").eval()
    batch = make_batch()
    outputs = learner.outputs(batch)
    backbone = learner.network.backbone
    assert learner.stage == "block2"
    maps = backbone.forward_to(batch.images, "block2")
    masks = learner.masks(maps)
    for number, rows in enumerate(outputs.values()):
        expected = learner.network.head(backbone.forward_from(masks[:, number] * maps, "block2"))
        torch.testing.assert_close(rows, expected)
    assert [rows.shape for rows in learner.members(outputs).values()] == [(24, 4), (24, 4)]


def test_the_loss_is_the_sum_of_the_members_and_the_divergence():
    options = {"members": 2, "lambda_div": 0.3, "margin_div": 2.0}
    learner = make("abe", method="proxy_anchor", learner={"options": options}).train()
    batch = make_batch()
    outputs = learner.outputs(batch)
    rows = list(outputs.values())
    own = [one(each, batch.labels) for one, each in zip(learner.objective_list, rows, strict=True)]
    expected = sum(own) + 0.3 * divergence(rows, 2.0)
    torch.testing.assert_close(sum(learner.losses(outputs, batch).values()), expected)


def test_an_image_passes_the_rest_of_the_network_once_for_every_mask():
    cost = require_training_only(make("abe", method="arcface"), make_batch())
    assert (cost.forward_passes, cost.dim, cost.training_only) == (2, 8, 2 * 3 * 4)


def test_what_it_cannot_train_is_refused():
    with pytest.raises(EquimetricError, match="splits the backbone at its stages and trains it"):
        make("abe", VECTORS)
    with pytest.raises(EquimetricError, match=r"set model\.frozen = false"):
        make("abe", model={"frozen": True})
    with pytest.raises(EquimetricError, match="has no stage 'block9'"):
        make("abe", learner={"options": {"members": 2, "stage": "block9"}})
    with pytest.raises(EquimetricError, match="must be a multiple of 3, got 8"):
        make("abe", learner={"options": {"members": 3}})
