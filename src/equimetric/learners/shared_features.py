"""Shared features: a second slice learns what different classes have in common."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.learners.batch import Batch
from equimetric.learners.learner import LearnerFactory, Outputs, learner
from equimetric.learners.modules.decorrelation import Decorrelation
from equimetric.learners.modules.networks import objective_terms
from equimetric.learners.modules.sliced import SlicedLearner
from equimetric.learners.modules.slices import Slices, split_evenly
from equimetric.learners.modules.triples import require_triples, triple_terms, triples_of_three_classes
from equimetric.learners.single import refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.option_values import NonNegativeFloat

__all__ = ["SharedFeatures"]


@learner(
    "shared_features",
    paper="Milbich, Roth, Brattoli, Ommer: Sharing matters for generalization in deep metric learning (2020)",
)
class SharedFeatures(SlicedLearner):
    """A slice for classes, and one for triples of three different classes: only shared properties can order these.

    L = L(class) + α · L(shared) + ρ · decorrelation(class, shared). Both slices of unit length are concatenated.
    """

    def __init__(
        self,
        network: EmbeddingNetwork,
        slices: Slices,
        objective: Objective | ObjectiveSum,
        shared_objective: Objective | ObjectiveSum,
        *,
        alpha: float,
        rho: float,
    ) -> None:
        super().__init__(network, slices)
        self.objective = objective
        self.shared_objective = shared_objective
        refuse_epoch_hooks(objective, "shared_features")
        self.decorrelation = Decorrelation(slices.sizes["shared"], slices.sizes["class"])
        self.alpha, self.rho = alpha, rho

    @classmethod
    def build(
        cls, factory: LearnerFactory, *, alpha: NonNegativeFloat = 1.0, rho: NonNegativeFloat = 500.0
    ) -> SharedFeatures:
        """Two slices that share the dimension; `alpha` weighs the shared one, `rho` the decorrelation."""
        sizes = dict(zip(("class", "shared"), split_evenly(factory.dim, 2), strict=True))
        shared = require_triples(factory.objective(sizes["shared"]), "shared_features")
        return cls(factory.network(), Slices(sizes), factory.objective(sizes["class"]), shared, alpha=alpha, rho=rho)

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The terms of both slices, and their decorrelation."""
        class_embedding, shared = outputs["class"], outputs["shared"]
        triples = triples_of_three_classes(shared, batch.labels)
        terms = objective_terms(self.objective, class_embedding, batch)
        shared_terms = triple_terms(self.shared_objective, shared, triples, batch)
        return {
            **{f"class {name}": value for name, value in terms.items()},
            **{f"shared {name}": self.alpha * value for name, value in shared_terms.items()},
            "decorrelation": self.rho * self.decorrelation(class_embedding, shared),
        }

    def training_only(self) -> Iterable[nn.Module]:
        """The objectives and the regressor."""
        return [*super().training_only(), self.decorrelation]

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and head, the regressor as "adversary", and the parameters of the objectives."""
        return {
            **self.network.parameter_groups(),
            "adversary": self.decorrelation.parameters(),
            "objective": [*self.objective.parameters(), *self.shared_objective.parameters()],
        }
