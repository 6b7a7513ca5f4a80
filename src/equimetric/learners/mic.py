"""MIC: an auxiliary head learns properties that classes share, so that the class head need not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.geometry import unit
from equimetric.learners.batch import Batch, Task
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.clusters import cluster
from equimetric.learners.modules.decorrelation import Decorrelation
from equimetric.learners.modules.multi_head import CLASS, MultiHeadLearner
from equimetric.learners.modules.networks import objective_terms
from equimetric.learners.single import refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.ops.blocks import sum_by_group
from equimetric.option_values import NonNegativeFloat, PositiveFloat, PositiveInt, UnitFraction
from equimetric.seeding import derive_seed

__all__ = ["MiningInterclassCharacteristics", "standardise_by_class"]

AUXILIARY = "auxiliary"


@learner(
    "mic", paper="Roth, Brattoli, Ommer: MIC: mining interclass characteristics for improved metric learning (2019)"
)
class MiningInterclassCharacteristics(MultiHeadLearner):
    """A class head and an auxiliary head, which learns groups of images that are alike across classes.

    The first groups are clusters of the features after the class means are taken away; later ones are clusters of the
    auxiliary embedding. Each step trains one head by its own labels, and in both kinds of steps ρ · decorrelation
    keeps the class embedding free of what the auxiliary one knows. Only the class head is evaluated.
    """

    clusters: Tensor

    def __init__(
        self,
        network: EmbeddingNetwork,
        head: nn.Module,
        objectives: tuple[Objective | ObjectiveSum, Objective | ObjectiveSum],
        decorrelation: Decorrelation,
        *,
        images: int,
        n_groups: int,
        rho: float,
        probability: float,
        noise: float,
        stage: str | None,
        period: int | None,
        seed: int,
    ) -> None:
        super().__init__(network, {AUXILIARY: head})
        self.objective, self.auxiliary_objective = objectives
        refuse_epoch_hooks(self.objective, "mic")
        self.decorrelation = decorrelation
        self.n_groups, self.rho, self.probability, self.noise = n_groups, rho, probability, noise
        self.stage, self.period, self.seed = stage, period, seed
        self.register_buffer("clusters", torch.full((images,), -1))

    @classmethod
    def build(
        cls,
        factory: LearnerFactory,
        *,
        clusters: PositiveInt = 30,
        rho: NonNegativeFloat = 2500.0,
        probability: PositiveFloat = 0.8,
        noise: UnitFraction = 0.2,
        dim: PositiveInt | None = None,
        stage: str | None = None,
        period: PositiveInt | None = None,
    ) -> MiningInterclassCharacteristics:
        """An auxiliary head of `dim` dimensions, by default as many as the class head.

        clusters     number of groups
        rho          weight of the decorrelation; the paper's: 2500 for CUB, 500 for Cars (150 groups), 250 for SOP (50)
        probability  auxiliary steps for each class step
        noise        share of auxiliary labels that are replaced by random ones in every batch
        stage        of the backbone, whose features are grouped first; by default its end
        period       steps between clusterings; by default those between validations
        """
        network, size = factory.network(), dim or factory.dim
        return cls(
            network,
            factory.head(network, size),
            (factory.objective(), factory.objective(size, clusters)),
            Decorrelation(size, factory.dim),
            images=factory.images,
            n_groups=clusters,
            rho=rho,
            probability=probability,
            noise=noise,
            stage=stage,
            period=period,
            seed=factory.seed,
        )

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of the head that the batch is drawn for, and the decorrelation of both."""
        objective, labels = self.objective, batch.labels
        if batch.task == AUXILIARY:
            objective, labels = self.auxiliary_objective, self.replace_labels(labels)
        terms = objective_terms(objective, outputs[batch.task], batch, labels)
        named_terms = {f"{batch.task} {name}": value for name, value in terms.items()}
        return {**named_terms, "decorrelation": self.rho * self.decorrelation(outputs[CLASS], outputs[AUXILIARY])}

    def replace_labels(self, labels: Tensor) -> Tensor:
        """The labels, a share of them replaced by random ones."""
        chosen = torch.rand(len(labels), device=labels.device) < self.noise
        return torch.where(chosen, torch.randint_like(labels, self.n_groups), labels)

    def training_only(self) -> Iterable[nn.Module]:
        """Objectives, the auxiliary head and the regressor."""
        return [*super().training_only(), self.decorrelation]

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and heads, the regressor as "adversary", and the parameters of the objectives."""
        return {
            **super().parameter_groups(),
            "adversary": self.decorrelation.parameters(),
            "objective": [*self.objective.parameters(), *self.auxiliary_objective.parameters()],
        }

    def members(self, outputs: Outputs) -> dict[str, Tensor]:  # noqa: ARG002
        """None: the auxiliary head is no embedding of classes."""
        return {}

    def tasks(self) -> Sequence[Task]:
        """Class steps, and auxiliary steps with the groups as labels."""
        return Task(CLASS), Task(AUXILIARY, labels=self.clusters, probability=self.probability)

    def on_epoch(self, view: EpochView) -> None:
        """Group the training images: first by class-standardised features, later by the auxiliary embedding."""
        previous = self.clusters.cpu()
        has_groups = bool((previous >= 0).all())
        if has_groups:
            points = unit(view.outputs(AUXILIARY)[AUXILIARY])
        else:
            points = standardise_by_class(unit(view.features(self.stage)), view.labels)
        seed = derive_seed(self.seed, "clusters", self.step)
        self.clusters.copy_(cluster(points, self.n_groups, seed=seed, previous=previous if has_groups else None))


def standardise_by_class(points: Tensor, labels: Tensor) -> Tensor:
    """(N, D) points minus the mean of their class, by the standard deviation inside it; 0 in classes without any."""
    labels = labels.to(points.device)
    count = labels.bincount()[:, None]

    def mean(values: Tensor) -> Tensor:
        return sum_by_group(values, labels, len(count)) / count

    centred = points - mean(points)[labels].to(points)
    deviation = mean(centred.square()).sqrt()[labels].to(points)
    return centred / deviation.clamp_min(1e-6)
