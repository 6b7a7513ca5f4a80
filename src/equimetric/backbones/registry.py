"""Backbones, heads and poolings by name. Each registers itself by a decorator in its own file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor, nn

from equimetric.registry import Registry

if TYPE_CHECKING:
    from equimetric.backbones.backbone import Backbone

__all__ = ["BACKBONES", "HEADS", "POOLINGS", "BackboneRecord", "backbone", "head", "pooling"]

BuildBackbone = TypeVar("BuildBackbone", bound="Callable[[int], Backbone]")

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class BackboneRecord:
    """A backbone of this package or of a plug-in."""

    name: str
    num_features: int
    size: int
    """Side of the images it is designed for; other sizes work too."""
    summary: str
    build: Callable[[int], Backbone]
    """Takes the number of image channels; networks for colour images take three whatever the images have."""
    translate: Callable[[Weights], Weights] = dict
    """Renames the weights of public files."""
    package: str | None = None
    """The Python package that holds ImageNet weights."""
    public_file: str | None = None
    """Name of the weight file in common use; it is not downloaded."""


BACKBONES: Registry[BackboneRecord] = Registry("backbone", "equimetric.backbones")
"""Name → record; `timm:<model>` and `torchvision:<model>` name the models of those libraries."""

HEADS: Registry[Callable[[int, int, float], nn.Module]] = Registry("head", "equimetric.backbones")
"""Name → function or class of (features, dim, dropout), a module from (B, features) to (B, dim)."""

POOLINGS: Registry[Callable[[], nn.Module]] = Registry("pooling", "equimetric.backbones")
"""Name → module from (B, C, h, w) to (B, C)."""

head = HEADS.register
pooling = POOLINGS.register


def backbone(
    name: str,
    *,
    num_features: int,
    size: int,
    translate: Callable[[Weights], Weights] = dict,
    package: str | None = None,
    public_file: str | None = None,
) -> Callable[[BuildBackbone], BuildBackbone]:
    """Register a function or class that builds a backbone from the number of image channels.

    The first line of its docstring is the summary; see `BackboneRecord` for the rest.
    """

    def decorate(build: BuildBackbone) -> BuildBackbone:
        summary = (inspect.getdoc(build) or "").partition("\n")[0].rstrip(".")
        record = BackboneRecord(name, num_features, size, summary, build, translate, package, public_file)
        BACKBONES.add(name, record, module=build.__module__)
        return build

    return decorate
