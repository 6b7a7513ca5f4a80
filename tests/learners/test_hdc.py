"""HDC: heads at three depths of one network."""

import pytest
import torch
from making import VECTORS, make, make_batch, require_training_only

from equimetric.backbones import build_backbone
from equimetric.errors import EquimetricError
from equimetric.learners.hdc import choose_stages
from equimetric.learners.modules.stages import maps_at_stages


def test_there_is_a_head_at_every_stage():
    learner = make("hdc").eval()
    batch = make_batch()
    outputs = learner.outputs(batch)
    members = learner.members(outputs)
    assert {name: rows.shape[1] for name, rows in members.items()} == {"block1": 3, "block2": 2, "block3": 3}
    backbone = learner.network.backbone
    first = learner.heads[0](backbone.forward_to(batch.images, "block1"))
    torch.testing.assert_close(outputs["embedding"][:, :3], first)
    torch.testing.assert_close(outputs["embedding"][:, 5:], learner.network(batch.images))


def test_maps_of_several_stages_come_from_one_pass():
    backbone = build_backbone("small_cnn", channels=1).eval()
    images = torch.rand(2, 1, 16, 16)
    maps = maps_at_stages(backbone, images, ["block1", "block2"])
    assert list(maps) == ["block1", "block2"]
    for stage, rows in maps.items():
        torch.testing.assert_close(rows, backbone.forward_to(images, stage))


def test_a_cascade_chooses_among_hard_pairs():
    batch = make_batch()
    values = []
    for cascade in (False, True):
        learner = make("hdc", options={"cascade": cascade}).train()
        values.append(sum(learner.losses(learner.outputs(batch), batch).values()).item())
    assert values[0] != values[1]


def test_default_stages():
    published = build_backbone("bn_inception", channels=3, load=False)
    assert choose_stages(published, None, 3) == ("inception_4a", "inception_4d", "inception_5b")
    assert choose_stages(published, None, 2) == ("inception_5a", "inception_5b")


def test_an_image_passes_the_backbone_once():
    cost = require_training_only(make("hdc"), make_batch())
    assert (cost.forward_passes, cost.dim, cost.training_only) == (1, 8, 0)


def test_what_it_cannot_train_is_refused():
    with pytest.raises(EquimetricError, match="splits the backbone at its stages and trains it"):
        make("hdc", VECTORS)
    with pytest.raises(EquimetricError, match=r"set model\.frozen = false"):
        make("hdc", model={"frozen": True})
    with pytest.raises(EquimetricError, match=r"needs 3 stages.*has block1, block2, block3"):
        make("hdc", learner={"options": {"stages": ["block1", "block2"]}})
    with pytest.raises(EquimetricError, match="needs 2 stages"):
        make("hdc", options={"ratios": [1.0, 0.5]}, learner={"options": {"stages": ["block3", "block1"]}})
    with pytest.raises(EquimetricError, match="set method = 'hdc'"):
        make("hdc", method="contrastive")
