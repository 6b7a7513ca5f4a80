"""A training batch, and the tasks that batches are drawn for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["Batch", "Task"]


@dataclass(frozen=True, eq=False)
class Batch:
    """A training batch, or a part of its rows.

    Attributes:
        images: (B, C, H, W) prepared and augmented, or (B, D) features. In `losses` those of this process alone.
        labels: (B,) class ids 0 … C − 1, or the labels of the batch's task.
        index: (B,) rows of the training set.
        group: (B,) clusters, where the learner has `groups`.
        weight: (B,) weight of each sample, where the data have weights.
        views: further augmentations of the same images, where the learner asks for them.
        task: name of the task the batch was drawn for.
        number: index of the batch in the run.
    """

    images: Tensor
    labels: Tensor
    index: Tensor
    group: Tensor | None = None
    views: tuple[Tensor, ...] = ()
    task: str = "main"
    number: int = 0
    weight: Tensor | None = None

    @classmethod
    def unlabelled(cls, images: Tensor) -> Batch:
        """Images without labels, to be embedded."""
        unknown = torch.full(images.shape[:1], -1, device=images.device)
        return cls(images, unknown, unknown)

    def __len__(self) -> int:
        return len(self.images)

    def rows(self, rows: slice) -> Batch:
        """Some rows of the batch."""
        return replace(
            self,
            images=self.images[rows],
            labels=self.labels[rows],
            index=self.index[rows],
            group=None if self.group is None else self.group[rows],
            weight=None if self.weight is None else self.weight[rows],
            views=tuple(view[rows] for view in self.views),
        )


@dataclass(frozen=True, eq=False)
class Task:
    """Batches drawn for one purpose; every optimiser step serves one task.

    Attributes:
        name: the value of `Batch.task`.
        labels: (N,) label of every training row, −1 for rows that are never drawn; None for the class ids.
        batches: batch sampler by name; None for the configured one.
        probability: share of the steps, relative to the other tasks.
    """

    name: str = "main"
    labels: Tensor | None = None
    batches: str | None = None
    probability: float = 1.0
