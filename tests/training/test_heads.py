import json
from pathlib import Path

import pytest
import torch

import equimetric as em
from equimetric.backbones import LayerNormHead, build_network
from equimetric.errors import EquimetricError
from equimetric.geometry import unit

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "layer_norm_head.json").read_text())


def test_the_head_of_normalised_softmax():
    features, weight, proxies, expected = (
        torch.tensor(WORKED[name], dtype=torch.float64) for name in ("features", "head_weight", "proxies", "embeddings")
    )
    head = LayerNormHead(features.shape[1], len(weight)).double()
    head.linear.weight.data = weight
    output = head(features)
    torch.testing.assert_close(unit(output), expected, rtol=0, atol=1e-6)
    assert (output > 0).int().tolist() == WORKED["bits"]
    loss = em.objective("normalized_softmax", classes=len(proxies), dim=len(weight), temperature=WORKED["temperature"])
    loss.double().references.weight.data = proxies
    assert loss(output, torch.tensor(WORKED["labels"])).item() == pytest.approx(WORKED["value"], abs=1e-6)


def test_no_linear_map_where_the_dimension_stays():
    assert not list(LayerNormHead(16, 16).parameters())


def test_heads_by_name():
    images = torch.randn(2, 1, 32, 32)
    assert build_network("small_cnn", channels=1, dim=8, head="layer_norm", dropout=0.5)(images).shape == (2, 8)
    with pytest.raises(EquimetricError, match="unknown head 'layernorm'; did you mean 'layer_norm'"):
        build_network("small_cnn", channels=1, dim=8, head="layernorm")
    with pytest.raises(EquimetricError, match="dimension must be at least 1"):
        build_network("small_cnn", channels=1, dim=0)
