"""Rows that every method must beat: learners that take no step."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from equimetric.backbones import Backbone, EmbeddingNetwork, init_head_by_pca
from equimetric.learners.batch import Batch
from equimetric.learners.learner import Learner, LearnerFactory, Outputs, learner

__all__ = ["Pretrained", "RawFeatures", "RawPixels", "Untrained"]


class Baseline(Learner):
    """Embeds without having learned anything."""

    trains = False

    def init_head(self, features: Callable[[], Tensor]) -> None:
        """Without a head there is nothing to start."""

    def embedding(self, outputs: Outputs) -> Tensor:
        """Unit-length embeddings."""
        return self.normalize(outputs["embedding"])


@learner("raw_pixels")
class RawPixels(Baseline):
    """The pixels of the test view themselves, scaled to [0, 1]."""

    @classmethod
    def build(cls, factory: LearnerFactory) -> RawPixels:  # noqa: ARG003  (every learner takes it)
        """Needs nothing."""
        return cls()

    def prepare(self, images: Tensor) -> Tensor:
        """Pixels in [0, 1]; features as they are."""
        return images if images.is_floating_point() else images / 255

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, C·H·W) pixels, or features as they are."""
        return {"embedding": batch.images.flatten(1)}


class NetworkBaseline(Baseline):
    """A network that is not trained."""

    def __init__(self, network: EmbeddingNetwork) -> None:
        super().__init__()
        self.network = network

    def prepare(self, images: Tensor) -> Tensor:
        """Images by the input convention of the backbone's weights."""
        return self.network.prepare(images)

    def frozen_backbone(self) -> Backbone | None:
        """The network's backbone."""
        return self.network.backbone


@learner("raw_features")
class RawFeatures(NetworkBaseline):
    """The features of the backbone before any head, or given features as they are."""

    @classmethod
    def build(cls, factory: LearnerFactory) -> RawFeatures:
        """The configured backbone without its head."""
        return cls(EmbeddingNetwork(factory.network().backbone, nn.Identity()))

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, F) features."""
        return {"embedding": self.network.features(batch.images)}


@learner("untrained")
class Untrained(NetworkBaseline):
    """The network as every method starts from it, its head included."""

    @classmethod
    def build(cls, factory: LearnerFactory) -> Untrained:
        """The configured network."""
        return cls(factory.network())

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, dim) embeddings."""
        return {"embedding": self.network(batch.images)}

    def init_head(self, features: Callable[[], Tensor]) -> None:
        """Start where every method starts."""
        init_head_by_pca(self.network.head, features())


@learner("pretrained")
class Pretrained(Untrained):
    """Features reduced to the embedding dimension by the principal components of all classes that are not for the test.

    The row "Pretrained" of the literature's tables. It needs model.head_init = "pca", which a study sets for it.
    """

    head_parts = ("train", "validation")
