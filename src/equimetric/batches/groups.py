"""Clusters of the training set, as a learner hands them to samplers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, not_a_tensor

__all__ = ["Groups"]


@dataclass(frozen=True, eq=False)
class Groups:
    """Clusters of training samples, and the importance of each sample.

    cluster  (N,) integer; samples of one class with the same number form a cluster, −1 leaves a sample out of all
             batches
    weight   (N,) importance of each sample, below 0 where it is unknown; None where nothing is known
    """

    cluster: Tensor
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        for name, value in (("cluster", self.cluster), ("weight", self.weight)):
            if value is not None and not isinstance(value, Tensor):
                raise not_a_tensor(value, name)
        if self.cluster.ndim != 1 or self.cluster.dtype.is_floating_point or self.cluster.dtype == torch.bool:
            raise EquimetricError(
                f"cluster must be a vector of integers, got {self.cluster.dtype} of shape {tuple(self.cluster.shape)}"
            )
        if self.weight is not None and self.weight.shape != self.cluster.shape:
            raise EquimetricError(
                f"got clusters of {len(self.cluster)} samples and weights of shape {tuple(self.weight.shape)}; "
                "give one weight per sample, or None"
            )

    def __len__(self) -> int:
        return len(self.cluster)
