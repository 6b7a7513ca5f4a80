"""Named stages of every registered backbone, and networks that take features in place of images."""

import copy
import math

import pytest
import torch
from torch import nn

from equimetric.backbones import (
    BACKBONES,
    EmbeddingNetwork,
    build_backbone,
    build_head,
    build_network,
    init_head_by_pca,
)
from equimetric.errors import EquimetricError
from equimetric.registry import read_declarations

IMAGES = torch.randn(2, 3, 64, 65, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", params=BACKBONES)
def backbone(request):
    torch.manual_seed(0)
    return build_backbone(request.param, channels=3).eval()


@torch.no_grad()
def test_every_stage_splits_the_backbone_in_two(backbone):
    whole = backbone(IMAGES)
    assert len(set(backbone.stages)) == len(backbone.stages) >= 3
    for stage in backbone.stages:
        maps = backbone.forward_to(IMAGES, stage)
        before = maps.clone()
        assert torch.equal(backbone.forward_from(maps, stage), whole)
        assert torch.equal(maps, before), "the maps are not changed in place"


@torch.no_grad()
def test_channels_and_stride_of_every_stage(backbone):
    for stage in backbone.stages:
        maps = backbone.forward_to(IMAGES, stage)
        assert maps.shape[:2] == (2, backbone.stage_channels(stage))
        assert maps.shape[2] == math.ceil(64 / backbone.stage_stride(stage))
    assert backbone.stage_channels(backbone.stages[-1]) == backbone.map_channels


def test_gradients_pass_through_a_stage(backbone):
    stage = backbone.stages[1]
    backbone.zero_grad()
    backbone.forward_from(backbone.forward_to(IMAGES, stage), stage).sum().backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())


def test_unknown_stages_are_named(backbone):
    with pytest.raises(EquimetricError, match=rf"no stage 'layer9'; its stages are {backbone.stages[0]}, "):
        backbone.forward_to(IMAGES, "layer9")
    with pytest.raises(EquimetricError, match="no stage 'layer9'"):
        backbone.forward_from(IMAGES, "layer9")
    with pytest.raises(EquimetricError, match="no stage 'layer9'"):
        backbone.stage_channels("layer9")


def test_backbones_are_declared_in_their_files():
    declared = {found.name: found for found in read_declarations("equimetric.backbones", "backbone")}
    assert declared.keys() == BACKBONES.keys()
    for name, record in BACKBONES.items():
        assert declared[name].keywords["num_features"] == record.num_features
        assert declared[name].summary == record.summary


# -- features in place of images


@pytest.fixture
def network():
    torch.manual_seed(0)
    return build_network("small_cnn", channels=1, dim=8)


PIXELS = torch.randint(0, 256, (5, 1, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_features_skip_the_backbone(network):
    network.eval()
    images = network.prepare(PIXELS)
    assert torch.equal(images, network.convention.apply(PIXELS))
    features = network.features(images)
    assert torch.equal(features, network.backbone(images))
    assert network.prepare(features) is features
    assert network.features(features) is features
    assert torch.equal(network(features), network(images))
    assert torch.equal(network.embed(features), network.embed(images))


def test_a_network_without_a_backbone_takes_features_only():
    network = EmbeddingNetwork(None, build_head("linear", 12, 4, 0.0))
    assert set(network.state_dict()) == {"head.weight", "head.bias"}
    features = torch.randn(3, 12)
    torch.testing.assert_close(network.embed(network.prepare(features)).norm(dim=1), torch.ones(3))
    assert not network.before_step(1)
    assert len(list(network.trained_parameters())) == 2
    init_head_by_pca(network.head, torch.randn(20, 12))
    torch.testing.assert_close(network.head.weight @ network.head.weight.T, torch.eye(4))
    for use in (network.prepare, network.features, network, network.embed):
        with pytest.raises(EquimetricError, match=r"no backbone: it takes feature vectors \(N, D\) only"):
            use(PIXELS)
    with pytest.raises(EquimetricError, match="no backbone"):
        network.freeze_backbone()


def test_a_frozen_backbone_stays_in_evaluation_mode(network):
    names = set(network.state_dict())
    before = copy.deepcopy(network.backbone.state_dict())
    assert not network.backbone_frozen
    network.freeze_backbone()
    for module in (network, nn.Sequential(network), copy.deepcopy(network)):
        module.train()
    assert network.backbone_frozen
    assert network.training
    assert network.head.training
    assert not any(module.training for module in network.backbone.modules())
    network(network.prepare(PIXELS)).sum().backward()
    assert {name for name, parameter in network.named_parameters() if parameter.grad is not None} == {
        "head.weight",
        "head.bias",
    }
    assert all(torch.equal(value, before[name]) for name, value in network.backbone.state_dict().items())
    assert set(network.state_dict()) == names
    trained = zip(network.trained_parameters(), network.head.parameters(), strict=True)
    assert all(parameter is own for parameter, own in trained)


def test_a_freeze_plan_does_not_thaw_a_frozen_backbone():
    network = build_network("small_cnn", channels=1, dim=8, freeze={"backbone": 5, "head.bias": 3})
    network.freeze_backbone()
    assert network.before_step(5)
    assert not any(parameter.requires_grad for parameter in network.backbone.parameters())
    assert network.head.bias.requires_grad
    assert len(list(network.trained_parameters())) == 2


def test_trained_parameters_include_those_that_wait():
    network = build_network("small_cnn", channels=1, dim=8, freeze={"backbone": 5, "backbone.blocks.0": math.inf})
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    trained = {names[id(parameter)] for parameter in network.trained_parameters()}
    assert trained == set(names.values()) - {"backbone.blocks.0.weight"}
