"""Divide and conquer: every slice of the embedding learns from one cluster of the training set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.geometry import unit
from equimetric.learners.batch import Batch, Task
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import DelayedStart, LearnerFactory, Outputs, learner
from equimetric.learners.modules.clusters import cluster, cluster_tasks, mask_singletons
from equimetric.learners.modules.networks import objective_terms
from equimetric.learners.modules.phases import Phases
from equimetric.learners.modules.sliced import SlicedLearner
from equimetric.learners.modules.slices import Slices
from equimetric.learners.single import refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.option_values import PositiveInt, UnitFraction
from equimetric.seeding import derive_seed

__all__ = ["DivideAndConquer"]


@learner(
    "divide_and_conquer",
    paper="Sanakoyeu, Tschernezki, Büchler, Ommer: Divide and conquer the embedding space for metric learning (2019)",
)
class DivideAndConquer(SlicedLearner):
    """K slices of one embedding, K clusters of the training set; a batch of cluster k trains slice k alone.

    k-means groups the unit-length backbone features of all training images again in every period, and the Hungarian
    method numbers the clusters as before. Rows that are alone of their class in a cluster are not drawn in that
    period, and a cluster of one class has no batches. In the joint phase at the end batches come from all classes and
    train the embedding as it is evaluated: concatenated slices of unit length.
    """

    clusters: Tensor
    drawn: Tensor
    labels: Tensor
    joint: Tensor

    def __init__(
        self,
        network: EmbeddingNetwork,
        slices: Slices,
        objectives: Iterable[Objective | ObjectiveSum],
        whole: Objective | ObjectiveSum,
        *,
        images: int,
        phases: Phases,
        seed: int,
    ) -> None:
        super().__init__(network, slices)
        self.objectives = nn.ModuleDict(dict(zip(slices.sizes, objectives, strict=True)))
        self.whole = whole
        refuse_epoch_hooks(whole, "divide_and_conquer")
        self.phases = phases
        self.period = phases.period
        self.seed = seed
        self.register_buffer("clusters", torch.full((images,), -1))
        self.register_buffer("drawn", torch.full((images,), -1))
        self.register_buffer("labels", torch.full((images,), -1))
        self.register_buffer("joint", torch.tensor(False))

    @classmethod
    def build(
        cls,
        factory: LearnerFactory,
        *,
        clusters: PositiveInt = 8,
        period: PositiveInt | None = None,
        joint: UnitFraction = 0.05,
    ) -> DivideAndConquer:
        """`clusters` slices that share the dimension; `period` in steps, by default that of validations.

        `joint` is the share of the steps at the end that train the whole embedding.
        """
        slices = Slices.equal(factory.dim, clusters, "slice")
        return cls(
            factory.network(),
            slices,
            map(factory.objective, slices.sizes.values()),
            factory.objective(),
            images=factory.images,
            phases=Phases.from_factory(factory, period, joint),
            seed=factory.seed,
        )

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of the slice that the batch is drawn for, or those of the whole embedding."""
        if batch.task not in self.slices.sizes:
            return objective_terms(self.whole, self.embedding(outputs), batch)
        terms = objective_terms(self.slice_objective(batch.task), outputs[batch.task], batch)
        return {f"{batch.task} {name}": value for name, value in terms.items()}

    def slice_objective(self, name: str) -> Objective | ObjectiveSum:
        """The objective of a slice."""
        return self.objectives[name]  # type: ignore[return-value]

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and head, and the parameters of the objectives."""
        objective_parameters = [*self.objectives.parameters(), *self.whole.parameters()]
        return {**self.network.parameter_groups(), "objective": objective_parameters}

    def tasks(self) -> Sequence[Task]:
        """One task for every cluster of two classes or more; one for all classes before a clustering and at the end."""
        tasks = () if self.joint else cluster_tasks(self.slices.sizes, self.drawn, self.labels)
        return tasks or (Task(),)

    def on_epoch(self, view: EpochView) -> None:
        """Cluster the training set again, unless the joint phase has begun."""
        self.joint.fill_(self.phases.is_joint(self.step))
        if self.joint:
            return
        previous = self.clusters.cpu()
        clusters = cluster(
            unit(view.features()),
            len(self.slices.sizes),
            seed=derive_seed(self.seed, "clusters", self.step),
            previous=previous if bool((previous >= 0).all()) else None,
        ).cpu()
        self.clusters.copy_(clusters)
        self.labels.copy_(view.labels)
        self.drawn.copy_(mask_singletons(clusters, view.labels.cpu()))

    def delayed_starts(self) -> list[DelayedStart]:
        """The joint phase, and parts of the objectives that begin later."""
        return [*super().delayed_starts(), self.phases.delayed_start()]
