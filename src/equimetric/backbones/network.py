"""Backbone, head and unit length: an image in, an embedding out."""

from collections.abc import Callable

from torch import Tensor, nn

from equimetric.backbones.heads import build_head
from equimetric.backbones.small_cnn import SmallCNN
from equimetric.errors import unknown_name
from equimetric.geometry import unit

__all__ = ["BACKBONES", "EmbeddingNetwork", "build_network"]

BACKBONES: dict[str, Callable[[int], nn.Module]] = {"small_cnn": SmallCNN}
"""Name → constructor that takes the number of image channels; the module has `features`, its output dimension."""


class EmbeddingNetwork(nn.Module):
    """A backbone and a head; `forward` gives raw outputs, `embed` unit-length embeddings."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, dim), not normalised: objectives do that themselves where their paper does."""
        output: Tensor = self.head(self.backbone(images))
        return output

    def embed(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, dim) of unit length, what is deployed and evaluated."""
        return unit(self(images))


def build_network(
    name: str, *, channels: int, dim: int, head: str = "linear", dropout: float = 0.0
) -> EmbeddingNetwork:
    """A freshly initialised network by name."""
    if name not in BACKBONES:
        raise unknown_name("backbone", name, BACKBONES)
    backbone = BACKBONES[name](channels)
    features = int(backbone.features)  # type: ignore[arg-type]
    return EmbeddingNetwork(backbone, build_head(head, features, dim, dropout))
