"""BIER: slices of one embedding that are boosted one after the other, and kept unlike each other."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.errors import EquimetricError, unknown_name
from equimetric.geometry import unit
from equimetric.learners.batch import Batch
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.networks import objective_terms, require_loss
from equimetric.learners.modules.slices import Slices, aggregate
from equimetric.learners.single import SingleObjectiveLearner
from equimetric.losses.bier import BoostedMembers
from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["Bier"]

Built = TypeVar("Built", bound="Bier")


@learner("bier", paper="Opitz, Waltner, Possegger, Bischof: BIER, boosting independent embeddings robustly (2017)")
class Bier(SingleObjectiveLearner):
    """M slices of one head, which the loss `bier` trains by online gradient boosting; later ones are larger.

    The options of the loss are those of the method: sizes in the proportion 96 : 160 : 256 unless given, the boosting,
    and the weights of the term R that keeps members unlike each other. As published, R sees the features without
    gradient and the head without its bias, so that the head alone learns from it, and
    lambda_div · lambda_w · Σ_m mean_k (‖w_k‖² − 1)² holds the rows w_k of the head near unit length.
    """

    weighs_samples = False
    method: ClassVar[str] = "bier"
    diversities: ClassVar[tuple[str, ...]] = ("none", "activation")

    def __init__(self, network: EmbeddingNetwork, objective: Objective | ObjectiveSum, weights: str = "size") -> None:
        super().__init__(network, objective)
        self.loss.includes_diversity = False
        self.slices = Slices.from_sizes(self.loss.sizes)
        self.weights = aggregation_weights(self.loss.sizes, weights)
        if self.loss.diversity not in self.diversities:
            raise EquimetricError(
                f"learner {self.method!r} has diversity {' or '.join(map(repr, self.diversities))}, not "
                f"{self.loss.diversity!r}; set method = {self.method!r}"
            )

    @classmethod
    def build(cls: type[Built], factory: LearnerFactory, *, weights: Literal["size", "boosting"] = "size") -> Built:
        """The configured network and loss.

        `weights` of the members in the aggregation: "size" for their share of the dimensions, as the authors' code
        has it, "boosting" for √α_m, α_m = 2m / (M (M + 1)), by which the cosine is the score that boosting builds up.
        """
        return cls(factory.network(), factory.objective(), weights)

    @property
    def loss(self) -> BoostedMembers:
        """The loss of the objective."""
        return require_loss(self.objective, BoostedMembers, self.method)

    @property
    def linear(self) -> nn.Linear:
        """The linear map whose rows are the members."""
        linear = next((module for module in self.network.head.modules() if isinstance(module, nn.Linear)), None)
        if linear is None:
            raise EquimetricError(
                "members need a linear map to the embedding, and this head has none; change model.dim"
            )
        return linear

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """The whole embedding, and in training the head's activations for detached features, without its bias."""
        features = self.network.features(batch.images)
        outputs = {"embedding": self.network.head(features)}
        if self.training and self.loss.diverse:
            activations = self.network.head(features.detach())
            outputs["activations"] = activations if self.linear.bias is None else activations - self.linear.bias
        return outputs

    def embedding(self, outputs: Outputs) -> Tensor:
        """The concatenated members, with their declared weights."""
        if not self.unit_length:
            return outputs["embedding"]
        return self.normalize(aggregate(list(self.slices.split(outputs["embedding"]).values()), self.weights))

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """Every slice alone."""
        return {name: unit(rows) for name, rows in self.slices.split(outputs["embedding"]).items()}

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The boosted losses, the term that keeps members unlike each other, and the penalty of the head's rows."""
        terms = objective_terms(self.objective, outputs["embedding"], batch)
        if self.loss.diverse:
            member_outputs = list(self.slices.split(outputs["activations"]).values())
            terms["diversity"] = self.loss.lambda_div * self.loss.penalty(member_outputs)
            terms["rows of the head"] = self.loss.lambda_div * self.loss.lambda_w * self.row_excess()
        return terms

    def row_excess(self) -> Tensor:
        """Σ_m mean_k (‖w_k‖² − 1)² over the rows of the head."""
        excess = (self.linear.weight.square().sum(1) - 1).square()
        return torch.stack([rows.mean() for rows in torch.split(excess, self.loss.sizes)]).sum()


def aggregation_weights(sizes: list[int], kind: str) -> list[float]:
    """The weight of each member at unit length in the whole embedding."""
    count = len(sizes)
    if kind == "size":
        return [size / sum(sizes) for size in sizes]
    if kind == "boosting":
        return [(2 * m / (count * (count + 1))) ** 0.5 for m in range(1, count + 1)]
    raise unknown_name("kind of weights", kind, ("size", "boosting"))
