"""The adapter for timm and torchvision, with stand-ins for the libraries."""

import sys
from collections import OrderedDict
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from equimetric.backbones import build_backbone, build_network
from equimetric.backbones.pooling import AveragePooling
from equimetric.backbones.torchvision_import import import_vision_library
from equimetric.errors import EquimetricError


class Tiny(nn.Module):
    """Shaped like the libraries' residual networks: maps, `avgpool`, dropout, `fc`; a second classifier half-way."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.bn = nn.BatchNorm2d(6)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(6, classes) if classes else nn.Identity()
        self.aux1 = nn.Linear(6, 10)

    def forward(self, images):
        return self.fc(self.dropout(self.avgpool(self.bn(self.conv(images))).flatten(1)))


class TinyResidual(nn.Module):
    """A residual network with the child modules of torchvision's or, with other names, timm's."""

    def __init__(self, activation="relu", pooling="avgpool", classes=10):
        super().__init__()
        self.last = (pooling, "fc")
        self.conv1 = nn.Conv2d(3, 4, 7, stride=2, padding=3)
        self.bn1 = nn.BatchNorm2d(4)
        setattr(self, activation, nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        for number, width in enumerate((6, 8, 10, 12), start=1):
            block = nn.Sequential(nn.LazyConv2d(width, 3, stride=1 if number == 1 else 2, padding=1), nn.ReLU())
            setattr(self, f"layer{number}", block)
        setattr(self, pooling, nn.AdaptiveAvgPool2d(1) if pooling == "avgpool" else AveragePooling())
        self.fc = nn.Linear(12, classes) if classes else nn.Identity()

    def forward(self, images):
        for name, layer in self.named_children():
            images = layer(images.flatten(1)) if name == "fc" else layer(images)
        return images


class Tokens(nn.Module):
    """No pooling module, as transformers have none."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(4, 10)))

    def forward(self, images):
        return self.heads(self.embed(images.mean((2, 3))))


@pytest.fixture
def torchvision(monkeypatch):
    preset = SimpleNamespace(
        crop_size=[24],
        resize_size=[32],
        mean=(0.5, 0.4, 0.3),
        std=(0.1, 0.2, 0.3),
        interpolation=SimpleNamespace(value="bicubic"),
    )
    weights = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: preset))
    module = ModuleType("torchvision.models")
    makers = {
        "tiny": Tiny,
        "resnet": TinyResidual,
        "tokens": Tokens,
        "convolutional": lambda: nn.Sequential(nn.Conv2d(3, 10, 1)),
    }
    module.list_models = lambda module: list(makers)
    module.get_model_weights = lambda name: weights

    def get_model(name, weights):
        module.asked_for = weights
        return makers[name]()

    module.get_model = get_model
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", module)
    return module


@pytest.fixture
def timm(monkeypatch):
    module = ModuleType("timm")
    module.is_model = lambda name: name in ("tiny", "resnet")
    module.list_models = lambda: ["tiny", "resnet"]

    def create_model(name, pretrained, num_classes):
        module.asked_for = (name, pretrained, num_classes)
        if name == "resnet":
            return TinyResidual("act1", "global_pool", num_classes)
        model = Tiny(num_classes)
        model.aux1 = None
        model.pretrained_cfg = {"classifier": "fc"}
        return model

    module.create_model = create_model
    settings = {"input_size": (3, 20, 20), "crop_pct": 0.9, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    module.data = SimpleNamespace(resolve_model_data_config=lambda model: settings | {"interpolation": "bicubic"})
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def test_a_torchvision_model_without_its_classifiers(torchvision):
    network = build_network("torchvision:tiny", channels=3, dim=5)
    assert torchvision.asked_for is None
    assert network.backbone.num_features == 6
    assert {name for name, _ in network.backbone.named_parameters()} == {
        f"model.{layer}.{tensor}" for layer in ("conv", "bn") for tensor in ("weight", "bias")
    }
    convention = network.convention
    assert (convention.size, convention.resize, convention.interpolation) == (24, 32, "bicubic")
    assert convention.mean == pytest.approx((127.5, 102, 76.5))
    assert convention.std == pytest.approx((25.5, 51, 76.5))
    images = convention.apply(torch.randint(0, 256, (4, 1, 24, 24), dtype=torch.uint8))
    assert network.embed(images).shape == (4, 5)
    # the classifier's dropout is gone too
    torch.testing.assert_close(network.backbone(images), network.backbone(images))


def test_counting_features_changes_nothing(torchvision):
    backbone = build_backbone("torchvision:tiny")
    assert backbone.training
    assert backbone.model.bn.num_batches_tracked == 0


def test_pooling_in_the_models_own_place(torchvision):
    network = build_network("torchvision:tiny", channels=3, dim=5, pooling="max")
    model, images = network.backbone.eval().model, torch.randn(2, 3, 24, 24)
    torch.testing.assert_close(network.backbone(images), model.bn(model.conv(images)).amax((2, 3)))
    with pytest.raises(EquimetricError, match="torchvision:tokens has no exchangeable pooling for 'gem'"):
        build_network("torchvision:tokens", channels=3, dim=5, pooling="gem")


@pytest.mark.parametrize("pooling", [None, "gem"])
@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_residual_networks_have_stages(torchvision, timm, library, pooling):
    backbone = build_network(f"{library}:resnet", channels=3, dim=5, pooling=pooling).backbone.eval()
    assert backbone.stages == ("conv1", "layer1", "layer2", "layer3", "layer4")
    assert [backbone.stage_channels(stage) for stage in backbone.stages] == [4, 6, 8, 10, 12]
    side = {"torchvision": 24, "timm": 20}[library]
    images = torch.randn(2, 3, side, side)
    for stage in backbone.stages:
        maps = backbone.forward_to(images, stage)
        assert maps.shape[1] == backbone.stage_channels(stage)
        assert torch.equal(backbone.forward_from(maps, stage), backbone(images))
    assert [backbone.stage_stride(stage) for stage in ("conv1", "layer1", "layer2")] == [4, 4, 8]


def test_other_library_models_have_no_stages(torchvision):
    backbone = build_backbone("torchvision:tiny")
    assert backbone.stages == ()
    with pytest.raises(EquimetricError, match="torchvision:tiny has no stage 'layer3'; it cannot be split into stages"):
        backbone.forward_to(torch.zeros(1, 3, 24, 24), "layer3")


def test_frozen_batch_norm_in_a_library_model(torchvision):
    network = build_network("torchvision:tiny", channels=3, dim=5, frozen_batch_norm=True).train()
    assert network.backbone.model.conv.training
    assert not network.backbone.model.bn.training


def test_a_file_for_a_library_model(torchvision, timm, tmp_path):
    weights = Tiny().state_dict()
    torch.save(weights, tmp_path / "tiny.pth")
    torch.save({name: value for name, value in weights.items() if not name.startswith("aux1")}, tmp_path / "timm.pth")
    for name, file in (("torchvision:tiny", "tiny.pth"), ("timm:tiny", "timm.pth")):
        backbone = build_backbone(name, pretrained=str(tmp_path / file))
        assert torch.equal(backbone.model.conv.weight, weights["conv.weight"])
    with pytest.raises(EquimetricError, match=r"2 not part of the network: aux1\.weight"):
        build_backbone("timm:tiny", pretrained=str(tmp_path / "tiny.pth"))


def test_weights_through_the_libraries_own_download(torchvision, timm):
    build_backbone("torchvision:tiny", pretrained="torchvision")
    assert torchvision.asked_for is torchvision.get_model_weights("tiny").DEFAULT
    build_backbone("timm:tiny", pretrained="timm")
    assert timm.asked_for == ("tiny", True, 0)
    with pytest.raises(EquimetricError, match="no weights 'timm' for torchvision:tiny"):
        build_backbone("torchvision:tiny", pretrained="timm")
    with pytest.raises(EquimetricError, match="no weights 'package' for timm:tiny"):
        build_backbone("timm:tiny", pretrained="package")


def test_without_internet(torchvision, timm):
    def unreachable(*args, **options):
        raise ConnectionError("no route to the hub\nand more")

    timm.create_model = torchvision.get_model = unreachable
    for library in ("timm", "torchvision"):
        with pytest.raises(
            EquimetricError, match=rf"{library}:tiny could not be downloaded \(no route to the hub\); give"
        ):
            build_backbone(f"{library}:tiny", pretrained=library)


def test_a_timm_model(timm):
    backbone = build_backbone("timm:tiny")
    assert timm.asked_for == ("tiny", False, 0)
    assert backbone.num_features == 6
    convention = backbone.convention
    assert (convention.size, convention.resize, convention.mean) == (20, 22, (127.5,) * 3)


def test_models_that_are_not_there(torchvision, timm):
    with pytest.raises(EquimetricError, match="torchvision has no model 'tinny'; did you mean 'tiny'"):
        build_backbone("torchvision:tinny")
    with pytest.raises(EquimetricError, match="timm has no model 'tinny'; did you mean 'tiny'"):
        build_backbone("timm:tinny")
    with pytest.raises(EquimetricError, match="no linear classifier"):
        build_backbone("torchvision:convolutional")


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_missing_library_says_what_to_install(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(EquimetricError, match=rf"need the package {library}.*pip install 'equimetric\[vision\]'"):
        build_backbone(f"{library}:resnet18")


def test_operators_that_torchvision_could_not_load_are_declared(tmp_path, monkeypatch):
    """A library that, like torchvision, describes operators which its compiled part would have declared."""
    (tmp_path / "describing_operators.py").write_text(
        "import torch\n"
        "for operator in ('nms', 'qnms'):\n"
        "    @torch.library.register_fake(f'torchvision::{operator}')\n"
        "    def described(dets, scores, iou_threshold): return dets\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match="torchvision::nms does not exist"):
        __import__("describing_operators")
    assert import_vision_library("describing_operators").operator == "qnms"


def test_libraries_that_do_not_go_together(tmp_path, monkeypatch):
    (tmp_path / "clashing_library.py").write_text("raise RuntimeError('compiled for something else')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        EquimetricError, match=r"do not go together \(compiled for something else\); install both again"
    ):
        import_vision_library("clashing_library")


class TinyInception(Tiny):
    """Re-normalises its input on request, as GoogLeNet and Inception v3 do."""

    def __init__(self, transform_input=False):
        super().__init__()
        self.transform_input = transform_input

    def forward(self, images):
        return super().forward(images * 0.5 - 0.1 if self.transform_input else images)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_a_loaded_model_normalises_its_input_as_in_training(torchvision, monkeypatch, name):
    def get_model(name, weights, transform_input=None, init_weights=None):
        torch.manual_seed(0)
        # The library switches it on where it loads the weights itself, and then takes no other value.
        assert transform_input is None or weights is None
        return TinyInception(transform_input=bool(weights) if transform_input is None else transform_input)

    monkeypatch.setattr(torchvision, "list_models", lambda module: [name])
    monkeypatch.setattr(torchvision, "get_model", get_model)
    images = torch.randn(2, 3, 24, 24)
    trained = build_backbone(f"torchvision:{name}", pretrained="torchvision").eval()
    loaded = build_backbone(f"torchvision:{name}", pretrained="torchvision", load=False).eval()
    assert torch.equal(loaded(images), trained(images))
    plain = build_backbone(f"torchvision:{name}").eval()
    assert not torch.allclose(plain(images), trained(images)), "without pretrained weights nothing is re-normalised"


def test_a_run_is_loaded_into_the_network_it_was_trained_in(torchvision, monkeypatch):
    from equimetric.configuration import load_config
    from equimetric.runs.building import build_learner
    from equimetric.runs.configuration import RunConfig
    from equimetric.runs.result import DataShape

    monkeypatch.setattr(torchvision, "list_models", lambda module: ["googlenet"])
    monkeypatch.setattr(
        torchvision,
        "get_model",
        lambda name, weights, **options: TinyInception(options.get("transform_input", weights is not None)),
    )
    config = load_config({"model": {"backbone": "torchvision:googlenet", "pretrained": "torchvision"}}, RunConfig)
    shape = DataShape(channels=3, vectors=False, classes=3, images=9)
    trained, loaded = (build_learner(config, shape, pretrained=read) for read in (True, False))
    assert trained.network.backbone.model.transform_input
    assert loaded.network.backbone.model.transform_input
