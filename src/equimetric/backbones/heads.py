"""What stands between a backbone's features and the embedding."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from equimetric.errors import EquimetricError, unknown_name

__all__ = ["HEADS", "LayerNormHead", "build_head", "initial_head_by_pca"]


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


@torch.no_grad()
def initial_head_by_pca(head: nn.Module, features: Tensor) -> None:
    """Start the head's linear map at the principal directions of training features instead of at random.

    y = Vᵀ (x − x̄),  V the directions of largest variance, orthonormal, largest first. On frozen features this keeps
    most of what the backbone knows, where a random map of few dimensions loses much of it. A head without bias keeps
    the mean, y = Vᵀ x. Where the head normalises features first, the directions are those of normalised ones.

    An eigenvector's sign is arbitrary; here its largest entry is positive. There are no more directions than
    features, nor than images less one: a larger embedding is refused.   Shapes: features (N, features).
    """
    linear = next((module for module in head.modules() if isinstance(module, nn.Linear)), None)
    if linear is None:
        raise EquimetricError("this head keeps the features' dimension and has no linear map to initialise by PCA")
    if features.ndim != 2 or features.shape[1] != linear.in_features:
        raise EquimetricError(f"the head takes features (N, {linear.in_features}), not {tuple(features.shape)}")
    directions = min(len(features) - 1, linear.in_features)
    if linear.out_features > directions:
        raise EquimetricError(
            f"{len(features)} images with {linear.in_features} features have at most {max(directions, 0)} principal "
            f"directions, too few for an embedding of {linear.out_features} dimensions; choose a smaller dimension, "
            "more images, or the usual random head"
        )
    values = features.to(torch.float64)
    if isinstance(head, LayerNormHead):
        values = head.norm(values)
    mean = values.mean(dim=0)
    centred = values - mean
    vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors  # columns, smallest variance first
    principal = vectors[:, -linear.out_features :].flip(1).T
    largest = principal.gather(1, principal.abs().argmax(dim=1, keepdim=True))
    principal = principal * largest.sign()
    linear.weight.copy_(principal)
    if linear.bias is not None:
        linear.bias.copy_(-principal @ mean)
