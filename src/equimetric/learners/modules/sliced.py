"""Learners whose embedding consists of slices: members with objectives of their own on one network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from equimetric.backbones import EmbeddingNetwork
from equimetric.geometry import unit
from equimetric.learners.batch import Batch
from equimetric.learners.learner import Outputs
from equimetric.learners.modules.single_network import SingleNetworkLearner
from equimetric.learners.modules.slices import Slices, aggregate

__all__ = ["SlicedLearner"]


class SlicedLearner(SingleNetworkLearner):
    """A network whose outputs are cut into slices; their declared aggregation is the embedding.

    Slices of unit length, each times its weight, are concatenated. A run that evaluates raw embeddings takes them
    as they are.
    """

    def __init__(self, network: EmbeddingNetwork, slices: Slices, weights: Sequence[float] | None = None) -> None:
        super().__init__(network)
        self.slices = slices
        self.weights = weights

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, d) of every slice, not normalised."""
        return self.slices.split(self.network(batch.images))

    def embedding(self, outputs: Outputs) -> Tensor:
        """The concatenated slices."""
        slices = [outputs[name] for name in self.slices.sizes]
        return self.normalize(aggregate(slices, self.weights)) if self.unit_length else torch.cat(slices, dim=1)

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """Every slice alone."""
        return {name: unit(outputs[name]) for name in self.slices.sizes}
