"""Helpers for networks and objectives of learners: terms of a batch, parameter groups, features of a stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.errors import EquimetricError
from equimetric.learners.batch import Batch
from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["backbone_features", "feature_dim", "merge_parameter_groups", "objective_terms", "require_loss"]


Loss = TypeVar("Loss", bound=nn.Module)


def objective_terms(
    objective: Objective | ObjectiveSum,
    embedding: Tensor,
    batch: Batch,
    labels: Tensor | None = None,
    *,
    references: Tensor | None = None,
) -> dict[str, Tensor]:
    """The terms of an objective for (B, d) embeddings of a batch, by its labels or by others; one number each.

    With `references` the rows are compared with these embeddings of the same batch, and not among themselves.
    """
    chosen = batch.labels if labels is None else labels
    options: dict[str, Tensor] = {} if batch.weight is None else {"sample_weight": batch.weight}
    if references is not None:
        options |= {"reference_embeddings": references, "reference_labels": chosen}
        options |= {} if batch.weight is None else {"reference_weight": batch.weight}
    terms: dict[str, Tensor] = objective.terms(embedding, chosen, index=batch.index, **options)
    for name, value in terms.items():
        if value.ndim:
            raise EquimetricError(
                f"{name!r} has a value for each query, but training minimises one number; choose reduction='mean'"
            )
    return terms


def require_loss(objective: Objective | ObjectiveSum, kind: type[Loss], name: str) -> Loss:
    """The loss of an objective; an error unless it is the loss of the paper of the learner of this name."""
    loss = objective.loss if isinstance(objective, Objective) else None
    if isinstance(loss, kind) and getattr(loss, "name", name) == name:
        return loss
    raise EquimetricError(
        f"learner {name!r} forms the members that the loss of its paper trains, no others; set method = {name!r}"
    )


def merge_parameter_groups(
    groups: Sequence[Mapping[str, Iterable[nn.Parameter]]], **others: nn.Module
) -> dict[str, Iterable[nn.Parameter]]:
    """Parameter groups of several networks under the same names, and those of other modules by group."""
    names = dict.fromkeys(name for group in groups for name in group)
    merged: dict[str, Iterable[nn.Parameter]] = {
        name: [parameter for group in groups for parameter in group.get(name, ())] for name in names
    }
    return {**merged, **{name: list(module.parameters()) for name, module in others.items()}}


def backbone_features(network: EmbeddingNetwork, images: Tensor, stage: str | None = None) -> Tensor:
    """(B, F) features of a network's backbone; after a stage the mean of its maps."""
    if stage is None or network.backbone is None:
        return network.features(images)
    return network.backbone.forward_to(images, stage).mean((2, 3))


def feature_dim(network: EmbeddingNetwork) -> int:
    """Number of input features of a network's head."""
    if network.backbone is not None:
        return network.backbone.num_features
    for module in network.head.modules():
        if isinstance(module, nn.Linear):
            return module.in_features
        if isinstance(module, nn.LayerNorm):
            return module.normalized_shape[-1]
    raise EquimetricError("the head shows no size of its features: it has no linear map and no layer normalisation")
