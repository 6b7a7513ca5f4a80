"""From labels to masks: which pairs are positive, which negative."""

import torch
from torch import Tensor

from equimetric.errors import EquimetricError

__all__ = ["check_embeddings", "check_labels", "relation"]


def check_embeddings(embeddings: Tensor, what: str = "embeddings") -> Tensor:
    """Embeddings as a float32 or float64 matrix: half precision is too coarse for similarities."""
    if embeddings.ndim != 2:
        raise EquimetricError(f"{what} must be a matrix of shape (samples, dimension), got {tuple(embeddings.shape)}")
    if not embeddings.is_floating_point():
        raise EquimetricError(f"{what} must be floating point, got {embeddings.dtype}")
    return embeddings if embeddings.dtype in (torch.float32, torch.float64) else embeddings.float()


def check_labels(labels: Tensor, embeddings: Tensor, what: str = "labels") -> Tensor:
    """Labels as int64, one per embedding, on the same device; class ids may be any whole numbers."""
    if labels.ndim != 1 or len(labels) != len(embeddings):
        raise EquimetricError(
            f"{what} must be one class id per embedding: got shape {tuple(labels.shape)} "
            f"for {len(embeddings)} embeddings"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise EquimetricError(
            f"{what} must be whole numbers, got {labels.dtype}: floating point cannot tell large class ids apart; "
            "convert with labels.long()"
        )
    return labels.to(embeddings.device, torch.int64)


def relation(labels: Tensor, reference_labels: Tensor, self_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """(Q, R) masks of positive and negative pairs; pairs of a sample with itself, where marked, are neither."""
    same = labels[:, None] == reference_labels[None, :]
    return (same if self_mask is None else same & ~self_mask), ~same
