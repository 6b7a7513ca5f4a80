"""Independent networks that are trained on the same batches: the control of every other ensemble."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork, init_head_by_pca
from equimetric.geometry import unit
from equimetric.learners.batch import Batch
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.multi_network import MultiNetworkLearner
from equimetric.learners.modules.networks import merge_parameter_groups, objective_terms
from equimetric.learners.modules.slices import Slices, aggregate
from equimetric.learners.single import run_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.option_values import PositiveInt

__all__ = ["NaiveEnsemble"]


@learner("naive_ensemble")
class NaiveEnsemble(MultiNetworkLearner):
    """M networks from different random starts, each with an objective of its own, on the same batches.

    The configured dimension is that of all members together, so that an ensemble is compared with one network of the
    same size of embedding. Members of unit length are concatenated: the cosine is the mean of theirs. On a frozen
    backbone, or on given features, the members are slices of one linear head, which is the same as a head for each.
    """

    weighs_samples = True

    def __init__(
        self, networks: Iterable[EmbeddingNetwork], objectives: Iterable[Objective | ObjectiveSum], slices: Slices
    ) -> None:
        super().__init__(networks)
        self.objectives = nn.ModuleList(objectives)
        self.slices = slices
        self.forward_passes = len(self.networks)

    @classmethod
    def build(cls, factory: LearnerFactory, *, members: PositiveInt = 4) -> NaiveEnsemble:
        """`members` networks that share the configured dimension."""
        slices = Slices.equal(factory.dim, members)
        sizes = list(slices.sizes.values()) if factory.trains_trunk else [factory.dim]
        return cls(map(factory.network, sizes), map(factory.objective, slices.sizes.values()), slices)

    @property
    def objective_list(self) -> Sequence[Objective | ObjectiveSum]:
        """The objectives, one for each member."""
        return list(self.objectives)  # type: ignore[arg-type]

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """(B, D / M) of every member."""
        if len(self.networks) == 1:
            return self.slices.split(self.network_list[0](batch.images))
        return {name: network(batch.images) for name, network in zip(self.slices.sizes, self.networks, strict=True)}

    def embedding(self, outputs: Outputs) -> Tensor:
        """The concatenated members, with equal weights."""
        if not self.unit_length:
            return torch.cat([outputs[name] for name in self.slices.sizes], dim=1)
        return self.normalize(aggregate([outputs[name] for name in self.slices.sizes]))

    def members(self, outputs: Outputs) -> dict[str, Tensor]:
        """Every network alone."""
        return {name: unit(outputs[name]) for name in self.slices.sizes}

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of every member's objective, on the same batch."""
        return {
            f"{name} {term}": value
            for name, objective in zip(self.slices.sizes, self.objective_list, strict=True)
            for term, value in objective_terms(objective, outputs[name], batch).items()
        }

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunks, heads and objectives of all members."""
        return merge_parameter_groups(
            [network.parameter_groups() for network in self.network_list], objective=self.objectives
        )

    def init_head(self, features: Callable[[], Tensor]) -> None:
        """Start every head at the principal components."""
        for network in self.network_list:
            init_head_by_pca(network.head, features())

    def on_epoch(self, view: EpochView) -> None:
        """Call every part of the objectives that has an `on_epoch` of its own, with the embeddings of its member."""
        for name, objective in zip(self.slices.sizes, self.objective_list, strict=True):
            run_epoch_hooks(objective, partial(member_of, view, name), view.labels)


def member_of(view: EpochView, name: str) -> Tensor:
    """(N, d) unit-length embeddings of the training set by one member."""
    return unit(view.outputs(name)[name])
