"""Networks against activations computed elsewhere, with weights that follow from a formula (in the data file)."""

import json
import math
from pathlib import Path

import pytest
import torch

from equimetric.backbones import BACKBONES, BNInception, build_backbone, build_network
from equimetric.backbones.efficientnet_lite import PUBLIC_NAMES, PUBLIC_NAMES_IN_BLOCKS
from equimetric.errors import EquimetricError

CASES = json.loads((Path(__file__).parents[1] / "worked_values" / "backbones.json").read_text())["cases"]


def noise(count, phase):
    wave = torch.sin(12.9898 * (torch.arange(count, dtype=torch.float64) + 1) + 78.233 * (phase + 1)) * 43758.5453
    return 2 * (wave - wave.floor()) - 1


def filled(name, shape):
    phase, count = sum(map(ord, name)) % 97, math.prod(shape)
    index = torch.arange(count, dtype=torch.float64)
    if len(shape) == 4:
        values = math.sqrt(6 / math.prod(shape[1:])) * noise(count, phase)
    elif "bn" not in name:
        values = 0.1 * torch.sin(index + phase)
    else:
        values = {
            "weight": 1 + 0.2 * torch.sin(index + phase),
            "bias": 0.1 * torch.cos(index + phase),
            "running_mean": 0.05 * torch.sin(2 * index + phase),
            "running_var": 1 + 0.3 * torch.sin(index + phase) ** 2,
        }[name.rpartition(".")[2]]
    return values.reshape(shape)


def public_name(own):
    """The name in the packages' files of an EfficientNet-Lite weight; BN-Inception has the public names already."""
    layer, _, tensor = own.rpartition(".")
    if layer.startswith("blocks."):
        _, number, part = layer.split(".", 2)
        part = {value: key for key, value in PUBLIC_NAMES_IN_BLOCKS.items()}[part]
        return f"_blocks.{number}.{part}.{tensor}"
    return f"{ {value: key for key, value in PUBLIC_NAMES.items()}.get(layer, layer) }.{tensor}"


def public_weights(backbone):
    own = {name: tensor for name, tensor in backbone.state_dict().items() if not name.endswith("num_batches_tracked")}
    return {public_name(name): filled(public_name(name), tensor.shape) for name, tensor in own.items()}


def worked_input(case):
    size, amplitude = case["size"], case["amplitude"]
    side, channel = torch.arange(size, dtype=torch.float64), torch.arange(3, dtype=torch.float64).view(3, 1, 1)
    waves = torch.sin(0.05 * side.view(-1, 1) + 0.07 * side + channel)
    return amplitude * (waves + 0.4 * noise(3 * size**2, 0).view(3, size, size))[None]


@pytest.mark.parametrize("name", CASES)
def test_features_of_a_public_weight_file(name, tmp_path):
    case = CASES[name]
    weights = public_weights(build_backbone(case["backbone"]))
    classifier = "last_linear" if case["backbone"] == "bn_inception" else "_fc"
    weights |= {f"{classifier}.weight": torch.zeros(1000, 1), f"{classifier}.bias": torch.zeros(1000)}
    torch.save(weights, tmp_path / "weights.pth")
    backbone = build_backbone(case["backbone"], pretrained=str(tmp_path / "weights.pth")).double().eval()
    # the file passed through float32 parameters: fill once more, exactly
    backbone.load_state_dict(BACKBONES[case["backbone"]].translate(weights), strict=False)
    with torch.no_grad():
        features = backbone(worked_input(case))[0]
    assert sum(parameter.numel() for parameter in backbone.parameters()) == case["parameters"]
    assert features.shape == (backbone.num_features,)
    assert features[:8].tolist() == pytest.approx(case["first8"], rel=1e-6, abs=1e-8)
    assert features.sum().item() == pytest.approx(case["sum"], rel=1e-8)
    assert features.square().sum().item() == pytest.approx(case["sum_of_squares"], rel=1e-8)


@pytest.mark.parametrize("size", [224, 227])
def test_every_stage_of_bn_inception(size):
    case = CASES[f"bn_inception {size}"]
    backbone = BNInception().double().eval()
    backbone.load_state_dict(public_weights(backbone), strict=False)
    stages = []
    with torch.no_grad():
        maps = backbone.prepare_input(worked_input(case))
        for name in backbone.stages:
            maps = backbone.forward_stage(name, maps)
            stages.append((name, maps.shape[1:], maps.mean().item()))
    for (name, shape, mean), (worked_name, worked_shape, worked_mean) in zip(stages, case["stages"], strict=True):
        assert (name, list(shape)) == (worked_name, worked_shape)
        assert mean == pytest.approx(worked_mean, rel=1e-6)


@pytest.mark.parametrize("name", BACKBONES)
def test_the_table_says_what_the_network_is(name):
    record = BACKBONES[name]
    network = build_network(name, channels=3, dim=4)
    assert (record.num_features, record.size) == (network.backbone.num_features, network.convention.size)
    assert record.name == name
    assert record.summary
    bytes_of_images = torch.randint(0, 256, (2, 3, 64, 33), dtype=torch.uint8)
    embeddings = network.embed(network.convention.apply(bytes_of_images))
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(2))
    embeddings.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_sizes_that_bn_inception_takes():
    backbone = BNInception().eval()
    with torch.no_grad():
        shapes = [tuple(backbone.forward_maps(torch.zeros(1, 3, side, 70)).shape[2:]) for side in (31, 38, 63)]
        assert shapes == [(1, 2), (1, 2), (2, 2)]
        for side in (30, 39, 62):
            with pytest.raises(EquimetricError, match=f"cannot take images of {side}×64 pixels"):
                backbone.forward_maps(torch.zeros(1, 3, side, 64))


def test_bn_inception_learns_statistics_slowly():
    # 0.9, as some ports have it, is Caffe's way of writing 0.1
    assert {norm.momentum for norm in BNInception().batch_norms()} == {0.1}
