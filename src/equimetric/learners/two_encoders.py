"""Two encoders into one space: images and their texts, or two views of one image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork, init_head_by_pca
from equimetric.data.attributes import find_attribute
from equimetric.data.dataset import ITEM
from equimetric.errors import EquimetricError, unknown_name
from equimetric.geometry import unit
from equimetric.learners.batch import Batch
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.multi_network import MultiNetworkLearner
from equimetric.learners.modules.networks import merge_parameter_groups, objective_terms
from equimetric.learners.single import refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.references.batch import BatchReferences

__all__ = ["TwoEncoders"]

POSITIVES = ("item", "class")

VIEWS = ("first", "second")
"""Names of the two views of an image."""


@learner(
    "two_encoders",
    paper="Radford et al.: Learning transferable visual models from natural language supervision (2021); "
    "Zhai, Mustafa, Kolesnikov, Beyer: Sigmoid loss for language image pre-training (2023)",
)
class TwoEncoders(MultiNetworkLearner):
    """An encoder for each of two modalities, whose outputs are compared with each other, never among themselves.

    L = ½ L(first → second) + ½ L(second → first), where L(a → b) is the objective with a as queries and b as explicit
    references. Modalities are those of paired data. Elsewhere they are two views of an image: two augmentations in
    training, twice the same image in evaluation. On a frozen backbone the encoders are two heads on its features.

    The embedding of an item is the mean of both unit vectors; each modality by itself is a member.
    """

    weighs_samples = True
    item: Tensor

    def __init__(
        self,
        networks: Iterable[EmbeddingNetwork],
        objective: Objective | ObjectiveSum,
        modalities: Mapping[str, int],
        *,
        positives: str = "item",
        items: Tensor | None = None,
    ) -> None:
        super().__init__(networks)
        refuse_epoch_hooks(objective, "two_encoders")
        self.objective = require_explicit_references(objective)
        self.modalities = dict(modalities)
        first, second = self.modalities or VIEWS
        self.paired = (first, second)
        self.positives = positives
        self.register_buffer("item", items)
        backbones = sum(network.backbone is not None for network in self.network_list)
        self.forward_passes = max(backbones, 1)
        self.views = backbones or 1

    @classmethod
    def build(cls, factory: LearnerFactory, *, positives: Literal["item", "class"] = "item") -> TwoEncoders:
        """Encoders into one space of the configured dimension; `positives` are of the same item, or the same class."""
        if positives not in POSITIVES:
            raise unknown_name("learner.options.positives", positives, POSITIVES)
        sizes = list(factory.modalities.values())
        first = factory.network(num_features=sizes[0] if sizes else None)
        if sizes:
            second = factory.network(num_features=sizes[1])
        elif factory.trains_trunk:
            second = factory.network()
        else:
            second = EmbeddingNetwork(None, factory.head(first, factory.dim))
        items = torch.full((factory.images,), -1) if ITEM in factory.attributes else None
        return cls([first, second], factory.objective(), factory.modalities, positives=positives, items=items)

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, d) of both encoders, not normalised."""
        return {
            name: network(inputs)
            for name, network, inputs in zip(self.names, self.network_list, self.split(batch), strict=True)
        }

    @property
    def names(self) -> tuple[str, str]:
        """The modalities."""
        assert self.paired is not None
        return self.paired

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Inputs of both encoders: the parts of the vectors, the views, or the same features twice."""
        if self.modalities:
            first, second = torch.split(batch.images, list(self.modalities.values()), dim=1)
            return first, second
        if self.network_list[1].backbone is None:
            features = self.network_list[0].features(batch.images)
            return features, features
        return batch.images, batch.views[0] if batch.views else batch.images

    def embedding(self, outputs: Outputs) -> Tensor:
        """(B, d) the mean of both modalities, each of unit length unless raw embeddings are evaluated."""
        first, second = (self.normalize(outputs[name]) for name in self.names)
        return self.normalize((first + second) / 2)

    def encode(self, modality: str, inputs: Tensor) -> Tensor:
        """(B, d) unit-length embeddings of prepared inputs of one modality alone: texts to search images by."""
        if modality not in self.names:
            raise unknown_name("modality", modality, self.names)
        index = self.names.index(modality)
        expected = list(self.modalities.values())[index] if self.modalities else None
        if expected is not None and (inputs.ndim != 2 or inputs.shape[1] != expected):
            raise EquimetricError(
                f"the modality {modality!r} has vectors of {expected} dimensions, not an array of {tuple(inputs.shape)}"
            )
        network, first_network = self.network_list[index], self.network_list[0]
        return unit(network(inputs if network.backbone is not None else first_network.features(inputs)))

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """Each modality alone."""
        return {name: unit(outputs[name]) for name in self.names}

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of both directions, half each."""
        labels = self.labels(batch)
        terms: dict[str, Tensor] = {}
        for query, reference in (self.names, self.names[::-1]):
            direction_terms = objective_terms(
                self.objective, outputs[query], batch, labels, references=outputs[reference]
            )
            terms |= {f"{query} to {reference} {name}": value / 2 for name, value in direction_terms.items()}
        return terms

    def labels(self, batch: Batch) -> Tensor:
        """(B,) labels that positives share: the class, the item, or the row of the training set."""
        if self.positives == "class":
            return batch.labels
        return batch.index if self.item is None else self.item[batch.index]

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunks and heads of both encoders, and the parameters of the objective."""
        return merge_parameter_groups(
            [network.parameter_groups() for network in self.network_list], objective=self.objective
        )

    def init_head(self, features: Callable[[], Tensor]) -> None:
        """Start every head at the principal components of its own modality."""
        sizes = list(self.modalities.values())
        rows = features()
        for network, modality_rows in zip(
            self.network_list, torch.split(rows, sizes, dim=1) if sizes else (rows, rows), strict=True
        ):
            init_head_by_pca(network.head, modality_rows)

    def on_epoch(self, view: EpochView) -> None:
        """Read which rows show the same item."""
        if self.item is not None:
            self.item.copy_(find_attribute(view.attributes, ITEM, "learner.options.positives"))


def require_explicit_references(objective: Objective | ObjectiveSum) -> Objective | ObjectiveSum:
    """The objective; an error where it cannot compare one set of embeddings with another."""
    for _, part in objective.parts():
        if part.takes == "batch" or not isinstance(part.references, BatchReferences):
            raise EquimetricError(
                f"learner 'two_encoders' compares one modality with the other, and {part.name!r} compares with "
                "references of its own; choose a method of pairs or triples, such as 'sigmoid' or 'ntxent'"
            )
    return objective
