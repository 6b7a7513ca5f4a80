"""One network, one objective."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.batches import Groups
from equimetric.errors import EquimetricError
from equimetric.learners.batch import Batch
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.networks import objective_terms
from equimetric.learners.modules.single_network import SingleNetworkLearner
from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["EpochHook", "GroupKeeper", "SingleObjectiveLearner", "refuse_epoch_hooks", "run_epoch_hooks"]


@runtime_checkable
class EpochHook(Protocol):
    """A loss, selection or kind of references that inspects the whole training set every epoch."""

    def on_epoch(self, embeddings: Callable[[], Tensor], labels: Tensor) -> None:
        """Inspect the embeddings of the training set, computed on demand, and its class ids."""


@runtime_checkable
class GroupKeeper(Protocol):
    """A part of an objective that clusters the training set, as magnet does."""

    def row_groups(self) -> tuple[Tensor, Tensor] | None:
        """(N,) cluster and (N,) weight of every training row, where they are kept."""


def run_epoch_hooks(objective: Objective | ObjectiveSum, embeddings: Callable[[], Tensor], labels: Tensor) -> None:
    """Call every part of an objective that has an `on_epoch` of its own."""
    for part in objective.modules():
        if isinstance(part, EpochHook):
            part.on_epoch(embeddings, labels)


def refuse_epoch_hooks(objective: Objective | ObjectiveSum, learner: str) -> None:
    """Raise an error for an objective that needs the whole training set, which a learner cannot show it."""
    if any(isinstance(part, EpochHook) for part in objective.modules()):
        raise EquimetricError(
            f"learner {learner!r} does not show the whole training set to the objectives of its members, and "
            "the configured one needs that; choose another method, or the learner 'single'"
        )


@learner("single")
class SingleObjectiveLearner(SingleNetworkLearner):
    """A network trained with one objective, or with a sum of them."""

    weighs_samples = True

    def __init__(self, network: EmbeddingNetwork, objective: Objective | ObjectiveSum) -> None:
        super().__init__(network)
        self.objective = objective

    @classmethod
    def build(cls, factory: LearnerFactory) -> SingleObjectiveLearner:
        """The configured network and objective."""
        return cls(factory.network(), factory.objective())

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """The network's embeddings, not normalised: objectives do that where their paper does."""
        return {"embedding": self.network(batch.images)}

    def embedding(self, outputs: Outputs) -> Tensor:
        """Unit-length embeddings."""
        return self.normalize(outputs["embedding"])

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of the objective."""
        return objective_terms(self.objective, outputs["embedding"], batch)

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and head of the network, and the parameters of the objective."""
        return {**self.network.parameter_groups(), "objective": self.objective.parameters()}

    def on_epoch(self, view: EpochView) -> None:
        """Call every part of the objective that has an `on_epoch` of its own."""
        run_epoch_hooks(self.objective, view.embeddings, view.labels)

    def pair_objective(self) -> Objective | ObjectiveSum | None:
        """The objective itself; learners built on this one add terms of their own."""
        return self.objective

    def groups(self) -> Groups | None:
        """The clusters of the first part of the objective that keeps them."""
        row_groups = (part.row_groups() for part in self.objective.modules() if isinstance(part, GroupKeeper))
        return next((Groups(*groups) for groups in row_groups if groups is not None), None)
