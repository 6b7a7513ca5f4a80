"""DiVA: four slices learn from classes, across classes, inside classes and from single images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from equimetric.backbones import EmbeddingNetwork
from equimetric.errors import EquimetricError
from equimetric.geometry import find_geometry, unit
from equimetric.learners.batch import Batch
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.decorrelation import Decorrelation
from equimetric.learners.modules.networks import objective_terms
from equimetric.learners.modules.sliced import SlicedLearner
from equimetric.learners.modules.slices import Slices, split_evenly
from equimetric.learners.modules.teacher import KeyQueue, MovingAverage
from equimetric.learners.modules.triples import (
    require_triples,
    triple_terms,
    triples_inside_classes,
    triples_of_three_classes,
)
from equimetric.learners.single import refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.option_values import NonNegativeFloat, PositiveFloat, PositiveInt, UnitFraction
from equimetric.pairs import Pairs, Queries
from equimetric.selection.distance_weighted import negative_probabilities

__all__ = ["DiverseVisualFeatures", "key_weights", "weighted_info_nce"]

HEADS = ("discriminative", "shared", "intra", "dance")
KEY = "key"


@learner(
    "diva",
    paper="Milbich, Roth, Bharadhwaj, Sinha, Bengio, Ommer, Cohen: DiVA: diverse visual feature aggregation for deep "
    "metric learning (2020)",
)
class DiverseVisualFeatures(SlicedLearner):
    """Four slices of one embedding, each with a task of its own, and the last three decorrelated from the first.

    discriminative  the objective by class
    shared          triples of three different classes
    intra           triples inside one class, which need three samples of each in a batch
    dance           every image against its second view, whose key a slowly moving copy of the network computes, and
                    against the keys of earlier batches

    L = L(discriminative) + α (L(shared) + L(intra) + L(dance)) + ρ Σ decorrelation(discriminative, other slice).
    At the test slices of unit length are concatenated, each times its weight, which is declared before training.
    """

    views = 2

    def __init__(
        self,
        network: EmbeddingNetwork,
        slices: Slices,
        objectives: Iterable[Objective | ObjectiveSum],
        *,
        weights: Sequence[float],
        alpha: float,
        rho: float,
        queue: int,
        temperature: float,
        momentum: float,
    ) -> None:
        super().__init__(network, slices, weights)
        self.objectives = nn.ModuleDict(dict(zip(HEADS, objectives, strict=False)))
        refuse_epoch_hooks(self.slice_objective(HEADS[0]), "diva")
        sizes = slices.sizes
        self.decorrelations = nn.ModuleDict({name: Decorrelation(sizes[name], sizes[HEADS[0]]) for name in HEADS[1:]})
        self.key_network = MovingAverage(network, momentum)
        self.queue = KeyQueue(queue, sizes["dance"])
        self.alpha, self.rho, self.temperature = alpha, rho, temperature

    @classmethod
    def build(
        cls,
        factory: LearnerFactory,
        *,
        alpha: NonNegativeFloat = 0.3,
        rho: NonNegativeFloat = 1500.0,
        queue: PositiveInt = 3360,
        temperature: PositiveFloat = 0.01,
        momentum: UnitFraction = 0.9,
        weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    ) -> DiverseVisualFeatures:
        """Four slices that share the dimension.

        alpha, rho   weights of the last three tasks and of the decorrelations; those of the paper for CUB and ResNet-50
        queue        keys of earlier batches; 30 batches of 112
        temperature  of the contrast with keys
        momentum     of the network that computes keys
        weights      of the slices at the test: discriminative, shared, intra, dance
        """
        if len(weights) != len(HEADS) or not all(weight >= 0 for weight in weights) or not any(weights):
            raise EquimetricError(f"learner 'diva' needs a weight of 0 or more for each of {', '.join(HEADS)}")
        sizes = dict(zip(HEADS, split_evenly(factory.dim, len(HEADS)), strict=True))
        first, *triple_objectives = (factory.objective(sizes[name]) for name in HEADS[:3])
        return cls(
            factory.network(),
            Slices(sizes),
            [first, *(require_triples(objective, "diva") for objective in triple_objectives)],
            weights=weights,
            alpha=alpha,
            rho=rho,
            queue=queue,
            temperature=temperature,
            momentum=momentum,
        )

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, d) of every slice, and the keys of the second view where there is one."""
        outputs = super().outputs(batch)
        if batch.views:
            outputs[KEY] = unit(self.slices.split(self.key_network(batch.views[0]))["dance"])
        return outputs

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of the four tasks and the decorrelations; the keys of the batch enter the queue."""
        first = outputs[HEADS[0]]
        triples = {
            "shared": triples_of_three_classes(outputs["shared"], batch.labels),
            "intra": triples_inside_classes(batch.labels),
        }
        terms = {
            f"{HEADS[0]} {name}": value
            for name, value in objective_terms(self.slice_objective(HEADS[0]), first, batch).items()
        }
        for task, task_triples in triples.items():
            task_terms = triple_terms(self.slice_objective(task), outputs[task], task_triples, batch)
            terms |= {f"{task} {name}": self.alpha * value for name, value in task_terms.items()}
        keys, queued_keys = outputs[KEY].detach(), self.queue.stored()[0].clone()
        terms["dance"] = self.alpha * weighted_info_nce(outputs["dance"], keys, queued_keys, self.temperature)
        decorrelations = [self.decorrelations[name](first, outputs[name]) for name in HEADS[1:]]
        terms["decorrelation"] = self.rho * torch.stack(decorrelations).sum()
        self.queue.put(keys, batch.labels)
        return terms

    def slice_objective(self, name: str) -> Objective | ObjectiveSum:
        """The objective of a slice."""
        return self.objectives[name]  # type: ignore[return-value]

    def training_only(self) -> Iterable[nn.Module]:
        """Objectives, regressors and the network of the keys."""
        return [*super().training_only(), self.decorrelations, self.key_network]

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and head, the regressors as "adversary", and the parameters of the objectives."""
        return {
            **self.network.parameter_groups(),
            "adversary": self.decorrelations.parameters(),
            "objective": self.objectives.parameters(),
        }

    def train(self, mode: bool = True) -> DiverseVisualFeatures:
        """Set the mode; the key network stays in evaluation mode: batch statistics would reveal each batch's keys."""
        super().train(mode)
        self.key_network.eval()
        return self

    def after_step(self, step: int) -> None:  # noqa: ARG002
        """Move the network of the keys."""
        self.key_network.follow(self.network)


def key_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, n) weight of every key, ∝ 1/q(max(d, 0.5)) and 0 at d ≥ 1.4; those of each query sum to 1.

    q is the density of distances between random points of the sphere. Unit-length (B, d) queries and (n, d) keys.
    """
    similarity = queries @ keys.T
    negative = torch.ones_like(similarity, dtype=torch.bool)
    pairs = Pairs(similarity, ~negative, negative, geometry=find_geometry("cosine"), queries=Queries(queries))
    return negative_probabilities(pairs)


def weighted_info_nce(embedding: Tensor, keys: Tensor, queued: Tensor, temperature: float) -> Tensor:
    """−mean log( e^{q·k/τ} / (e^{q·k/τ} + Σ_j e^{w_j q·k_j/τ}) ), k the key of the same image, k_j queued ones.

    The weights w_j of `key_weights` have no gradient.   Shapes: (B, d), (B, d), (n, d); keys of unit length.
    """
    queries = unit(embedding)
    queued = queued.to(queries)
    positive = (queries * keys.to(queries)).sum(1, keepdim=True)
    logits = torch.cat([positive, key_weights(queries.detach(), queued) * (queries @ queued.T)], dim=1) / temperature
    return cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64, device=logits.device))
