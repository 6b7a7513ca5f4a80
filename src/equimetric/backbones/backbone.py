"""What every backbone has: features, an input convention, and batch normalisation that can be frozen for good."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from torch import Tensor, nn

from equimetric.backbones.conventions import InputConvention
from equimetric.backbones.pooling import build_pooling
from equimetric.errors import EquimetricError

__all__ = ["Backbone", "FrozenBatchNorm", "MapBackbone"]

FrozenBatchNorm: TypeAlias = bool | Literal["statistics"]
"""Frozen whole (running statistics, scale and shift), not at all, or the running statistics alone."""


class Backbone(nn.Module):
    """Images in, `features` numbers per image out."""

    features: int
    convention: InputConvention
    frozen_batch_norm: FrozenBatchNorm = False

    def pool_by(self, pooling: str) -> None:
        """Replace the pooling of the last maps, by a name of `POOLINGS`."""
        raise EquimetricError(
            f"{type(self).__name__} has no feature maps to pool by {pooling!r}; leave `pooling` out to take its own"
        )

    def batch_norms(self) -> Iterator[nn.modules.batchnorm._BatchNorm]:
        """All batch normalisation layers."""
        return (module for module in self.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))

    def freeze_batch_norm(self, frozen: FrozenBatchNorm = True) -> None:
        """Use the running statistics and never update them, whatever `train()` is called with.

        `True` freezes scale and shift too; 'statistics' leaves them to the optimiser.
        """
        if frozen not in (True, False, "statistics"):
            raise EquimetricError(f"frozen_batch_norm is true, false or 'statistics', not {frozen!r}")
        self.frozen_batch_norm = frozen
        if frozen is True:
            for norm in self.batch_norms():
                norm.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> "Backbone":
        """As for every module, but frozen batch normalisation stays as in evaluation.

        A layer whose scale does not learn is frozen too: statistics that drift would change a part that is meant to
        stay as it is.
        """
        super().train(mode)
        if mode:
            for norm in self.batch_norms():
                if self.frozen_batch_norm or (norm.affine and not norm.weight.requires_grad):
                    norm.eval()
        return self


class MapBackbone(Backbone):
    """A backbone that ends in feature maps, `maps` channels of them, and a pooling over their places."""

    maps: int

    def __init__(self) -> None:
        super().__init__()
        self.pooling = build_pooling("avg")

    def forward_maps(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, maps, h, w)."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, features)."""
        features: Tensor = self.pooling(self.forward_maps(images))
        return features

    def pool_by(self, pooling: str) -> None:
        """Replace the pooling of the last maps, by a name of `POOLINGS`."""
        self.pooling = build_pooling(pooling)
        self.features = self.maps
