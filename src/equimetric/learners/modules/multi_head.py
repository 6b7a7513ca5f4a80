"""Learners whose network has further heads besides the one that is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork, init_head_by_pca
from equimetric.geometry import unit
from equimetric.learners.batch import Batch
from equimetric.learners.learner import Outputs
from equimetric.learners.modules.networks import merge_parameter_groups
from equimetric.learners.modules.single_network import SingleNetworkLearner

__all__ = ["MultiHeadLearner"]

CLASS = "class"
"""The output of the network's own head, which is the embedding."""


class MultiHeadLearner(SingleNetworkLearner):
    """A network whose own head embeds by class, and further heads on the same features for training."""

    def __init__(self, network: EmbeddingNetwork, heads: Mapping[str, nn.Module]) -> None:
        super().__init__(network)
        self.heads = nn.ModuleDict(heads)

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, d) of every head, not normalised."""
        features = self.network.features(batch.images)
        return {CLASS: self.network.head(features), **{name: head(features) for name, head in self.heads.items()}}

    def embedding(self, outputs: Outputs) -> Tensor:
        """The head for classes alone."""
        return self.normalize(outputs[CLASS])

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """Every head alone."""
        return {name: unit(outputs[name]) for name in (CLASS, *self.heads)}

    def training_only(self) -> Iterable[nn.Module]:
        """The objectives, and the heads that the embedding leaves out."""
        return [*super().training_only(), *self.heads.values()]

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and all heads of the network."""
        return merge_parameter_groups([self.network.parameter_groups(), {"head": self.heads.parameters()}])

    def init_head(self, features: Callable[[], Tensor]) -> None:
        """Start every head at the principal components."""
        for head in (self.network.head, *self.heads.values()):
            init_head_by_pca(head, features())
