"""Learners that are built on one network."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from equimetric.backbones import Backbone, EmbeddingNetwork, init_head_by_pca
from equimetric.learners.learner import Learner
from equimetric.learners.modules.networks import backbone_features

__all__ = ["SingleNetworkLearner"]


class SingleNetworkLearner(Learner):
    """A learner with one network: its inputs, features, initial head and freeze plan."""

    def __init__(self, network: EmbeddingNetwork) -> None:
        super().__init__()
        self.network = network
        self.step = 0

    def prepare(self, images: Tensor) -> Tensor:
        """Images by the input convention of the backbone's weights; features as they are."""
        return self.network.prepare(images)

    def frozen_backbone(self) -> Backbone | None:
        """The network's backbone."""
        return self.network.backbone

    def features(self, images: Tensor, stage: str | None = None) -> Tensor:
        """Features of the network's backbone; after a stage the mean of its maps."""
        return backbone_features(self.network, images, stage)

    def init_head(self, features: Callable[[], Tensor]) -> None:
        """Start the network's head at the principal components."""
        init_head_by_pca(self.network.head, features())

    def before_step(self, step: int) -> bool:
        """Follow the network's freeze plan, and note the step, which phases and seeds depend on."""
        self.step = step
        return self.network.before_step(step)
