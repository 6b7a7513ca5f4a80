"""Layers of losses that learn a map of the embeddings, computed in the precision of the embeddings."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from equimetric.ops.ratios import divide

__all__ = ["BatchNorm", "layer_norm", "linear"]


def linear(layer: nn.Linear, vectors: Tensor) -> Tensor:
    """(…, D) → (…, H)."""
    return functional.linear(vectors, layer.weight.to(vectors), None if layer.bias is None else layer.bias.to(vectors))


def layer_norm(layer: nn.LayerNorm, vectors: Tensor) -> Tensor:
    """(…, D) → (…, D)."""
    shape = list(layer.normalized_shape)
    return functional.layer_norm(vectors, shape, layer.weight.to(vectors), layer.bias.to(vectors), layer.eps)


class BatchNorm(nn.Module):
    """Batch normalisation by the statistics of the present batch, also outside training.

    A loss sees the batch of all processes and is never applied to a single image, so no running statistics are kept.
    Without `shift` the mean stays at 0.
    """

    def __init__(self, features: int, *, shift: bool = True, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features)) if shift else None
        self.epsilon = epsilon

    def forward(self, vectors: Tensor, counts: Tensor | None = None) -> Tensor:
        """(B, D) → (B, D); samples count (B,) `counts`, each once where that is None."""
        counts = vectors.new_ones(len(vectors)) if counts is None else counts.to(vectors)
        weights = divide(counts, counts.sum())
        centred = vectors - weights @ vectors
        scaled = centred * (weights @ centred.square() + self.epsilon).rsqrt() * self.weight.to(vectors)
        return scaled if self.bias is None else scaled + self.bias.to(vectors)
