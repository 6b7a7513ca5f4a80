"""Pooling, frozen batch normalisation, freezing by name and the head by PCA."""

import copy
import math

import pytest
import torch
from torch import nn

from equimetric.backbones import POOLINGS, FreezePlan, LayerNormHead, build_network, init_head_by_pca
from equimetric.backbones.heads import build_head
from equimetric.errors import EquimetricError

IMAGES = torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(3))


def small(**options):
    return build_network("small_cnn", channels=1, dim=8, **options)


def test_poolings_by_their_formulas():
    maps = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[0.0, 0.0], [0.0, -1.0]]]], dtype=torch.float64)
    assert POOLINGS["avg"]()(maps).tolist() == [[3.0, -0.25]]
    assert POOLINGS["max"]()(maps).tolist() == [[6.0, 0.0]]
    assert POOLINGS["avg+max"]()(maps).tolist() == [[9.0, -0.25]]
    cubic = ((1 + 8 + 27 + 216) / 4) ** (1 / 3)
    assert POOLINGS["gem"]().double()(maps).flatten().tolist() == pytest.approx([cubic, 1e-6])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_of_a_network(pooling):
    network = small(pooling=pooling)
    assert network.backbone.num_features == 112
    network(IMAGES).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    maps = network.eval().backbone.forward_maps(IMAGES)
    torch.testing.assert_close(network.backbone(IMAGES), POOLINGS[pooling]()(maps))


def test_the_exponent_of_gem_learns_and_is_stored():
    network = small(pooling="gem")
    network(IMAGES).square().sum().backward()
    assert network.backbone.pooling.exponent.grad.abs() > 0
    assert network.state_dict()["backbone.pooling.exponent"] == 3


def test_unknown_pooling():
    with pytest.raises(EquimetricError, match="unknown pooling 'mean'"):
        small(pooling="mean")


def statistics(network):
    return [norm.running_mean.clone() for norm in network.backbone.batch_norms()]


@pytest.mark.parametrize("frozen", [True, "statistics"])
def test_frozen_batch_norm_survives_train(frozen):
    network = small(frozen_batch_norm=frozen)
    before = statistics(network)
    for module in (network, network.backbone, nn.Sequential(network), copy.deepcopy(network)):
        module.train()
        network(IMAGES).sum().backward()
        assert not any(norm.training for norm in network.backbone.batch_norms())
    assert all(map(torch.equal, statistics(network), before))
    scales = [norm.weight for norm in network.backbone.batch_norms()]
    assert [scale.grad is not None for scale in scales] == [frozen == "statistics"] * len(scales)
    assert network.training
    assert network.backbone.blocks[0].training


def test_batch_norm_that_is_not_frozen_moves():
    network = small()
    before = statistics(network)
    network.train()(IMAGES)
    assert not any(map(torch.equal, statistics(network), before))


def test_frozen_batch_norm_is_a_switch():
    with pytest.raises(EquimetricError, match="true, false or 'statistics', not 'yes'"):
        small(frozen_batch_norm="yes")


def learning(network):
    return {name for name, parameter in network.named_parameters() if parameter.requires_grad}


def test_a_frozen_backbone_stays_as_it_is_in_every_number():
    network = small(freeze=["backbone"]).train()
    before = copy.deepcopy(network.backbone.state_dict())
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.1, weight_decay=0.1)
    network(IMAGES).square().sum().backward()
    optimiser.step()
    assert learning(network) == {"head.weight", "head.bias"}
    assert all(torch.equal(value, before[name]) for name, value in network.backbone.state_dict().items())


def test_staged_unfreezing():
    network = small(freeze={"backbone": 20, "backbone.blocks.8": 10, "backbone.blocks.0": math.inf}).train()
    head, last = {"head.weight", "head.bias"}, {"backbone.blocks.8.weight"}
    assert learning(network) == head
    assert [network.before_step(step) for step in (0, 9, 10, 11)] == [False, False, True, False]
    assert learning(network) == head | last
    assert not any(norm.training for norm in network.backbone.batch_norms())
    assert network.before_step(20)
    assert learning(network) == set(dict(network.named_parameters())) - {"backbone.blocks.0.weight"}
    assert all(norm.training for norm in network.backbone.batch_norms())


def test_a_resumed_run_is_at_its_stage():
    network = small(freeze={"backbone": 20})
    assert network.before_step(1000)
    assert learning(network) == set(dict(network.named_parameters()))


def test_unfreezing_leaves_frozen_batch_norm_alone():
    network = small(freeze={"backbone": 5}, frozen_batch_norm=True).train()
    network.before_step(5)
    assert learning(network) == {"head.weight", "head.bias"} | {f"backbone.blocks.{i}.weight" for i in (0, 4, 8)}
    assert not any(norm.training for norm in network.backbone.batch_norms())


def test_the_beginning_of_a_name():
    plan = FreezePlan({"blocks.1": 7, "inception_3": 8, "inception_3a": 9})
    names = ("blocks.1.weight", "blocks.10.weight", "inception_3b_1x1.bias", "inception_3a_1x1.bias", "head.weight")
    assert [plan.first_step(name) for name in names] == [7, 0, 8, 9, 0]


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        (["backbome"], "did you mean 'backbone'"),
        ("backbone", r"write \['backbone'\]"),
        ({"backbone": -1}, "from a step 0, 1, 2"),
        ({"backbone": 1.5}, "from a step 0, 1, 2"),
        ([""], "not an empty text"),
    ],
)
def test_freeze_plans_that_make_no_sense(freeze, message):
    with pytest.raises(EquimetricError, match=message):
        small(freeze=freeze)


def spread_features(count=200):
    """Features whose principal directions are the axes, in the order 3, 1, 0, 2, 4, around a mean far from 0."""
    return torch.randn(count, 5) * torch.tensor([3.0, 5.0, 1.0, 9.0, 0.1]) + 7


def test_head_by_principal_directions():
    features, head = spread_features(), build_head("linear", 5, 3, 0.0)
    init_head_by_pca(head, features)
    torch.testing.assert_close(head.weight @ head.weight.T, torch.eye(3))
    torch.testing.assert_close(head.weight, torch.eye(5)[[3, 1, 0]], rtol=0, atol=0.15)
    outputs = head(features)
    torch.testing.assert_close(outputs.mean(0), torch.zeros(3), rtol=0, atol=1e-5)
    covariance = outputs.T @ outputs / 200
    torch.testing.assert_close(covariance, covariance.diag().diag(), rtol=0, atol=1e-3)
    assert covariance.diag().tolist() == sorted(covariance.diag().tolist(), reverse=True)


def test_head_by_pca_follows_from_the_features_alone():
    features = spread_features()
    first, second = build_head("linear", 5, 4, 0.5), build_head("linear", 5, 4, 0.0)
    init_head_by_pca(first, features)
    init_head_by_pca(second, features.flip(0))
    torch.testing.assert_close(first[1].weight, second.weight)


def test_head_by_pca_after_layer_normalisation():
    features, head = spread_features(), LayerNormHead(5, 2)
    init_head_by_pca(head, features)
    normalised = nn.functional.layer_norm(features, (5,))
    _, _, directions = torch.linalg.svd(normalised - normalised.mean(0))
    torch.testing.assert_close((head.linear.weight @ directions[:2].T).abs(), torch.eye(2), rtol=0, atol=1e-5)


def test_where_there_are_too_few_directions():
    with pytest.raises(EquimetricError, match="at most 5 principal directions, too few for an embedding of 6"):
        init_head_by_pca(build_head("linear", 5, 6, 0.0), spread_features())
    with pytest.raises(EquimetricError, match="3 images with 5 features have at most 2"):
        init_head_by_pca(build_head("linear", 5, 3, 0.0), spread_features(3))
    with pytest.raises(EquimetricError, match="takes features"):
        init_head_by_pca(build_head("linear", 4, 3, 0.0), spread_features())
    with pytest.raises(EquimetricError, match="no linear map"):
        init_head_by_pca(LayerNormHead(5, 5), spread_features())
