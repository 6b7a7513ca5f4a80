"""Backbones by name, with the weights that `pretrained` asks for."""

from functools import cache
from pathlib import Path
from typing import Protocol

import torch

from equimetric.backbones.backbone import Backbone
from equimetric.backbones.library_models import timm_backbone, torchvision_backbone
from equimetric.backbones.registry import BACKBONES, BackboneRecord
from equimetric.backbones.weights import load_pretrained, packaged_weights, read_weights
from equimetric.errors import EquimetricError, unknown_name
from equimetric.files import unreadable_reason
from equimetric.weight_sources import LIBRARY_MODELS, describe_library_weights, describe_weights

__all__ = ["LIBRARY_MODELS", "build_backbone", "describe_weight_options", "find_input_size", "find_weight_file"]


class BuildLibraryModel(Protocol):
    """Builds a model of a library by its name there."""

    def __call__(self, model_name: str, pretrained: str | None = None, *, load: bool = True) -> Backbone: ...


LIBRARIES: dict[str, BuildLibraryModel] = {
    "timm": timm_backbone,
    "torchvision": torchvision_backbone,
}


def build_backbone(name: str, *, channels: int = 3, pretrained: str | None = None, load: bool = True) -> Backbone:
    """A backbone by name: of `BACKBONES`, `timm:<model>` or `torchvision:<model>`.

    `pretrained` is the source of its weights: 'package' for an installed Python package, 'timm' or 'torchvision' for
    that library's own download, or the path of a file. Without it they are random. With `load=False` these weights
    are not read, because others that were trained from them will be loaded; the network still is the one for them.
    """
    library, colon, model_name = name.partition(":")
    if colon and library in LIBRARIES:
        backbone = LIBRARIES[library](model_name, pretrained, load=load)
    elif name in BACKBONES:
        record = BACKBONES[name]
        backbone = record.build(channels)
        if load and pretrained is not None:
            source = _weight_file(record, pretrained)
            load_pretrained(backbone, record.translate(read_weights(source)), source)
    else:
        error = unknown_name("backbone", name, BACKBONES)
        raise EquimetricError(f"{error}; library models are named 'timm:resnet50', 'torchvision:resnet50'")
    if channels not in (1, backbone.convention.channels):
        raise EquimetricError(f"{name} takes grey or RGB images, not images of {channels} channels")
    return backbone


@cache
def find_input_size(name: str) -> int:
    """Side of the images that a backbone is made for; a library's model is built to find out."""
    if name in BACKBONES:
        return BACKBONES[name].size
    with torch.random.fork_rng(devices=[]):
        return build_backbone(name).convention.size


def find_weight_file(name: str, pretrained: str | None) -> Path | None:
    """The file that holds a backbone's initial weights; None where a library downloads them, or there are none."""
    if pretrained is None or (name.partition(":")[0] in LIBRARIES and pretrained in LIBRARIES):
        return None
    file = Path(_weight_file(BACKBONES[name], pretrained) if name in BACKBONES else pretrained).expanduser()
    return None if unreadable_reason(file) else file


def describe_weight_options(name: str) -> str:
    """Values of `pretrained` for a backbone, the package they need, and whether it is installed."""
    library, colon, _ = name.partition(":")
    if colon and library in LIBRARIES:
        return describe_library_weights(library)
    record = BACKBONES[name]
    return describe_weights(record.package, record.public_file)


def _weight_file(record: BackboneRecord, pretrained: str) -> str:
    if pretrained in LIBRARIES:
        raise EquimetricError(f"{pretrained} has no weights for {record.name}; give the path of a weight file")
    if pretrained != "package":
        return pretrained
    if record.package is None:
        packaged = ", ".join(other_record.name for other_record in BACKBONES.values() if other_record.package)
        raise EquimetricError(
            f"no package holds weights of {record.name}, only of {packaged}; give a weight file's path"
        )
    return str(packaged_weights(record.package))
