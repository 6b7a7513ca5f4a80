"""Backbone, linear head and unit length: an image in, an embedding out."""

from collections.abc import Callable

from torch import Tensor, nn

from equimetric.backbones.small_cnn import SmallCNN
from equimetric.errors import EquimetricError, unknown_name
from equimetric.geometry import unit

__all__ = ["BACKBONES", "EmbeddingNetwork", "build_network"]

BACKBONES: dict[str, Callable[[int], nn.Module]] = {"small_cnn": SmallCNN}
"""Name → constructor that takes the number of image channels; the module has `features`, its output dimension."""


class EmbeddingNetwork(nn.Module):
    """A backbone and a linear head; `forward` gives raw outputs, `embed` unit-length embeddings."""

    def __init__(self, backbone: nn.Module, features: int, dim: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(features, dim)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, dim), not normalised: objectives do that themselves where their paper does."""
        output: Tensor = self.head(self.backbone(images))
        return output

    def embed(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, dim) of unit length, what is deployed and evaluated."""
        return unit(self(images))


def build_network(name: str, *, channels: int, dim: int) -> EmbeddingNetwork:
    """A freshly initialised network by name."""
    if name not in BACKBONES:
        raise unknown_name("backbone", name, BACKBONES)
    if dim < 1:
        raise EquimetricError(f"the embedding dimension must be at least 1, got {dim}")
    backbone = BACKBONES[name](channels)
    return EmbeddingNetwork(backbone, int(backbone.features), dim)  # type: ignore[arg-type]
