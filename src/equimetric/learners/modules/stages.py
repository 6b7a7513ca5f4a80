"""Backbones that are split at named stages, for heads and masks at several depths."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from equimetric.backbones import Backbone, EmbeddingNetwork
from equimetric.errors import EquimetricError
from equimetric.learners.learner import LearnerFactory

__all__ = ["maps_at_stages", "require_stages"]


def require_stages(factory: LearnerFactory, network: EmbeddingNetwork, learner: str) -> Backbone:
    """The backbone of a network, where it is trained and can be split."""
    if not factory.trains_trunk or network.backbone is None:
        raise EquimetricError(
            f"learner {learner!r} splits the backbone at its stages and trains it, which features in place of images "
            "do not allow; give images and set model.frozen = false, or choose another learner"
        )
    if not network.backbone.stages:
        raise EquimetricError(
            f"learner {learner!r} splits the backbone at its stages, and {network.backbone.label} has none; choose "
            "small_cnn, bn_inception, an efficientnet_lite or a resnet"
        )
    return network.backbone


def maps_at_stages(backbone: Backbone, images: Tensor, stages: Iterable[str]) -> dict[str, Tensor]:
    """(B, channels, h, w) the maps after each of these stages, and of no later one, in one pass."""
    required, maps_by_stage = set(stages), {}
    maps = backbone.prepare_input(images)
    for stage in backbone.stages:
        maps = backbone.forward_stage(stage, maps)
        if stage in required:
            maps_by_stage[stage] = maps
        if len(maps_by_stage) == len(required):
            break
    return maps_by_stage
