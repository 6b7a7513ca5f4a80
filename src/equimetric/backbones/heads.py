"""What stands between a backbone's features and the embedding."""

from collections.abc import Callable

from torch import Tensor, nn

from equimetric.errors import EquimetricError, unknown_name

__all__ = ["HEADS", "LayerNormHead", "build_head"]


class LayerNormHead(nn.Module):
    """Layer normalisation without parameters, dropout, and a linear map without bias where the dimension changes.

    The head of Zhai, Wu: Classification is a strong baseline for deep metric learning (2019). Normalising around each
    image's own mean makes 0 a meaningful threshold for binary embeddings.
    """

    def __init__(self, features: int, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=1e-5, elementwise_affine=False)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Identity() if dim == features else nn.Linear(features, dim, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """(B, features) → (B, dim)."""
        output: Tensor = self.dropout(self.linear(self.norm(features)))
        return output


def linear_head(features: int, dim: int, dropout: float = 0.0) -> nn.Module:
    """A linear map with bias, after dropout where asked for."""
    linear = nn.Linear(features, dim)
    return nn.Sequential(nn.Dropout(dropout), linear) if dropout else linear


HEADS: dict[str, Callable[[int, int, float], nn.Module]] = {"linear": linear_head, "layer_norm": LayerNormHead}


def build_head(name: str, features: int, dim: int, dropout: float) -> nn.Module:
    """A head by name."""
    if name not in HEADS:
        raise unknown_name("head", name, HEADS)
    if dim < 1:
        raise EquimetricError(f"the embedding dimension must be at least 1, got {dim}")
    return HEADS[name](features, dim, dropout)
