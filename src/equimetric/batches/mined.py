"""Batches mined offline, from the embeddings of the whole training set at every refresh."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from equimetric.batches.base import Batches, EmbeddingView
from equimetric.errors import EquimetricError, not_a_tensor

__all__ = ["MinedBatches", "average_members", "nearest_neighbours"]

CHUNK_ENTRIES = 2**22
"""Distances computed at a time."""


class MinedBatches(Batches):
    """Batches chosen by the embeddings of the last `refresh`; the mined tensors are part of `state_dict()`."""

    mined: dict[str, Tensor]

    def __init__(self, labels: Tensor, **options: Any) -> None:
        super().__init__(labels, **options)
        self.mined = {}

    @abstractmethod
    def mine(self, embeddings: Tensor) -> dict[str, Tensor]:
        """Tensors that the batches need, by name, from the (N, D) embeddings."""

    @torch.no_grad()
    def refresh(self, embeddings: Tensor | EmbeddingView, labels: Tensor) -> None:
        """Mine the (N, D) embeddings of the training set, or a function that returns them."""
        if not isinstance(embeddings, Tensor) and not callable(embeddings):
            raise not_a_tensor(embeddings, "embeddings")
        if not isinstance(embeddings, Tensor):
            embeddings = embeddings()
        if not torch.equal(labels.detach().cpu(), self.labels):
            raise EquimetricError("the labels are not those that the batches were made for; give those of all samples")
        if embeddings.ndim != 2 or len(embeddings) != len(self.labels):
            raise EquimetricError(
                f"embeddings must be a matrix with one row for each of the {len(self.labels)} samples, "
                f"got shape {tuple(embeddings.shape)}"
            )
        if not torch.isfinite(embeddings).all():
            raise EquimetricError("some embeddings are not finite; the training run may have diverged")
        # A copy, since the caller may change its tensor later.
        self.mined = self.mine(embeddings.detach().to("cpu", torch.float32, copy=True))

    def get_mined(self, name: str) -> Tensor:
        """A tensor that `mine` returned."""
        if name not in self.mined:
            raise EquimetricError("mined batches need embeddings first; call refresh(embeddings, labels)")
        return self.mined[name]

    def state_dict(self) -> dict[str, Any]:
        """Seed, epoch, position and mined tensors."""
        return {**super().state_dict(), "mined": {name: value.clone() for name, value in self.mined.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at a saved position."""
        super().load_state_dict(state)
        self.mined = {name: value.clone() for name, value in state["mined"].items()}


def average_members(embeddings: Tensor, members: Sequence[Tensor]) -> Tensor:
    """(classes, D) mean embedding of each class."""
    return torch.stack([embeddings[rows].mean(0) for rows in members])


def nearest_neighbours(points: Tensor, squared_norms: Tensor, k: int, group: Tensor | None = None) -> Tensor:
    """(n, k) nearest other points of each, the nearest first; only points of other groups where `group` is given.

    d(i, j) = squared_norms_i + squared_norms_j − 2 points_i · points_j: the squared Euclidean distance of points; the
    mean squared distance of two sets where points are set means and `squared_norms` the sets' mean squared norms.
    """
    step = max(1, CHUNK_ENTRIES // len(points))
    nearest = []
    for start in range(0, len(points), step):
        rows = slice(start, start + step)
        # squared_norms_i is constant in a row and does not change the order.
        distance = squared_norms - 2 * points[rows] @ points.T
        if group is None:
            distance.diagonal(offset=start).fill_(torch.inf)
        else:
            distance.masked_fill_(group[rows, None] == group, torch.inf)
        nearest.append(distance.topk(k, largest=False).indices)
    return torch.cat(nearest)
