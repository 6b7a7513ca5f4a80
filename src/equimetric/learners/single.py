"""One network, one objective."""

from collections.abc import Iterable

from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.learners.learner import Batch, Learner
from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["SingleLearner"]


class SingleLearner(Learner):
    """A network trained with one objective, or with a sum of them."""

    def __init__(self, network: EmbeddingNetwork, objective: Objective | ObjectiveSum) -> None:
        super().__init__()
        self.network = network
        self.objective = objective

    def embed(self, images: Tensor) -> Tensor:
        """The network's unit-length embeddings."""
        return self.network.embed(images)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of the objective on this batch."""
        return self.objective.terms(self.network(batch.images), batch.labels, index=batch.index)

    def objective_parameters(self) -> Iterable[nn.Parameter]:
        """Proxies, boundaries and whatever else the objective learns."""
        return self.objective.parameters()
