"""Learners that are built on several networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from equimetric.backbones import Backbone, EmbeddingNetwork
from equimetric.learners.learner import Learner
from equimetric.learners.modules.networks import backbone_features

__all__ = ["MultiNetworkLearner"]


class MultiNetworkLearner(Learner):
    """A learner with several networks: their inputs, features and freeze plans."""

    def __init__(self, networks: Iterable[EmbeddingNetwork]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    @property
    def network_list(self) -> Sequence[EmbeddingNetwork]:
        """The networks."""
        return list(self.networks)  # type: ignore[arg-type]

    def prepare(self, images: Tensor) -> Tensor:
        """Images by the input convention of the backbones' weights; features as they are."""
        return self.network_list[0].prepare(images)

    def frozen_backbone(self) -> Backbone | None:
        """The one backbone there is; None where each network has its own."""
        backbones = [network.backbone for network in self.network_list if network.backbone is not None]
        return backbones[0] if len(backbones) == 1 else None

    def features(self, images: Tensor, stage: str | None = None) -> Tensor:
        """Features of the first network's backbone."""
        return backbone_features(self.network_list[0], images, stage)

    def before_step(self, step: int) -> bool:
        """Follow the networks' freeze plan."""
        changed = [network.before_step(step) for network in self.network_list]
        return any(changed)
