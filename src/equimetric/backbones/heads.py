"""Heads: from a backbone's features to the embedding."""

from collections.abc import MutableMapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from equimetric.backbones.registry import HEADS, head
from equimetric.errors import EquimetricError

__all__ = ["LayerNormHead", "build_head", "init_head_by_pca", "require_directions"]


@head("layer_norm")
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


@head("linear")
def linear_head(features: int, dim: int, dropout: float = 0.0) -> nn.Module:
    """A linear map with bias, after dropout unless it is 0."""
    linear = nn.Linear(features, dim)
    return nn.Sequential(nn.Dropout(dropout), linear) if dropout else linear


def build_head(name: str, features: int, dim: int, dropout: float) -> nn.Module:
    """A head by name."""
    build = HEADS.find(name)
    if dim < 1:
        raise EquimetricError(f"the embedding dimension must be at least 1, got {dim}")
    return build(features, dim, dropout)


@torch.no_grad()
def init_head_by_pca(head: nn.Module, features: Tensor) -> None:
    """Initialise the head's linear map with the principal directions of training features.

    y = Vᵀ (x − x̄),  V the orthonormal directions of largest variance, largest first. A random map of few dimensions
    loses much of what a frozen backbone knows; this one keeps most of it. A head without bias keeps the mean, y = Vᵀ x.
    A head that normalises features first gets the directions of normalised ones.

    Signs are fixed by making each direction's largest entry positive. There are at most min(D, N − 1) directions; a
    larger embedding raises an error.   Shapes: features (N, D).
    """
    linear = require_directions(head, len(features), features.shape[-1])
    norm = head.norm if isinstance(head, LayerNormHead) else None
    directions = cached_directions(features, linear.out_features, norm)
    linear.weight.copy_(directions.vectors)
    if linear.bias is not None:
        linear.bias.copy_(-directions.vectors @ directions.mean)


class Directions(NamedTuple):
    """(dim, D) principal directions, largest variance first, and the (D,) mean of what they are of; float64."""

    vectors: Tensor
    mean: Tensor


def principal_directions(features: Tensor, dim: int, norm: nn.Module | None) -> Directions:
    """The directions of (N, D) features, normalised first where there is a `norm`."""
    values = features.to(torch.float64)
    if norm is not None:
        values = norm(values)
    mean = values.mean(dim=0)
    centred = values - mean
    vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors  # columns, smallest variance first
    principal = vectors[:, -dim:].flip(1).T
    largest = principal.gather(1, principal.abs().argmax(dim=1, keepdim=True))
    return Directions(principal * largest.sign(), mean)


_cached_directions: MutableMapping[Tensor, tuple[tuple[object, ...], Directions]] = WeakTensorKeyDictionary()
"""The last directions of features that are still in memory: the runs of a study start from the same ones."""


def cached_directions(features: Tensor, dim: int, norm: nn.Module | None) -> Directions:
    """`principal_directions`, computed once for features that have not changed since."""
    if features.is_inference():
        return principal_directions(features, dim, norm)
    cached_key, directions = _cached_directions.get(features, (None, None))
    key = (features._version, dim, str(norm))
    if directions is None or cached_key != key:
        directions = principal_directions(features, dim, norm)
        _cached_directions[features] = (key, directions)
    return directions


def require_directions(head: nn.Module, images: int, features: int) -> nn.Linear:
    """The linear map that principal directions of (images, features) initialise; too few of them raise an error."""
    linear = next((module for module in head.modules() if isinstance(module, nn.Linear)), None)
    if linear is None:
        raise EquimetricError("this head keeps the features' dimension and has no linear map to initialise by PCA")
    if features != linear.in_features:
        raise EquimetricError(f"the head takes features (N, {linear.in_features}), not {(images, features)}")
    directions = max(min(images - 1, features), 0)
    if linear.out_features > directions:
        raise EquimetricError(
            f"{images} images with {features} features have at most {directions} principal directions, too few for an "
            f"embedding of {linear.out_features} dimensions; choose a smaller dimension, more images, or the usual "
            "random head"
        )
    return linear
