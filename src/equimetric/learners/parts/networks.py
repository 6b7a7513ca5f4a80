"""What learners do with networks and objectives: terms of a batch, parameter groups, features of a stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.errors import EquimetricError
from equimetric.learners.batch import Batch
from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["backbone_features", "join_groups", "objective_terms"]


def objective_terms(
    objective: Objective | ObjectiveSum, embedding: Tensor, batch: Batch, labels: Tensor | None = None
) -> dict[str, Tensor]:
    """The terms of an objective for (B, d) embeddings of a batch, by its labels or by others; one number each."""
    weights = {} if batch.weight is None else {"sample_weight": batch.weight}
    chosen = batch.labels if labels is None else labels
    terms: dict[str, Tensor] = objective.terms(embedding, chosen, index=batch.index, **weights)
    for name, value in terms.items():
        if value.ndim:
            raise EquimetricError(
                f"{name!r} has a value for each query, but training minimises one number; choose reduction='mean'"
            )
    return terms


def join_groups(
    groups: Sequence[Mapping[str, Iterable[nn.Parameter]]], **others: nn.Module
) -> dict[str, Iterable[nn.Parameter]]:
    """Parameter groups of several networks under the same names, and those of other modules by group."""
    names = dict.fromkeys(name for one in groups for name in one)
    joined: dict[str, Iterable[nn.Parameter]] = {
        name: [parameter for one in groups for parameter in one.get(name, ())] for name in names
    }
    return {**joined, **{name: list(module.parameters()) for name, module in others.items()}}


def backbone_features(network: EmbeddingNetwork, images: Tensor, stage: str | None = None) -> Tensor:
    """(B, F) features of a network's backbone; after a stage the mean of its maps."""
    if stage is None or network.backbone is None:
        return network.features(images)
    return network.backbone.forward_to(images, stage).mean((2, 3))
