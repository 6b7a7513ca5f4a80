"""Layers of losses that learn a map of the embeddings."""

from torch import Tensor, nn
from torch.nn.functional import linear as apply_linear

__all__ = ["linear"]


def linear(layer: nn.Linear, vectors: Tensor) -> Tensor:
    """(…, D) → (…, H), in the precision of the vectors, whatever that of the weights."""
    return apply_linear(vectors, layer.weight.to(vectors), layer.bias.to(vectors))
