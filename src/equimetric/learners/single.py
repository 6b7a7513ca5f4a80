"""One network, one objective."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.batches.base import EmbeddingView
from equimetric.learners.learner import Batch, Learner
from equimetric.losses.magnet import Magnet
from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["BeginsEpochs", "SingleLearner"]


@runtime_checkable
class BeginsEpochs(Protocol):
    """A loss, selection or kind of references that looks at the whole training set now and then.

    What it finds there belongs into its `state_dict()`.
    """

    def on_epoch(self, embeddings: EmbeddingView, labels: Tensor) -> None:
        """Update from the embeddings of the training set, `embeddings()`, and its class ids."""


class SingleLearner(Learner):
    """A network trained with one objective, or with a sum of them."""

    def __init__(self, network: EmbeddingNetwork, objective: Objective | ObjectiveSum) -> None:
        super().__init__()
        self.network = network
        self.objective = objective

    def embed(self, images: Tensor) -> Tensor:
        """The network's unit-length embeddings."""
        return self.network.embed(images)

    def prepare(self, images: Tensor) -> Tensor:
        """Images by the convention of the backbone's weights; feature vectors (N, D) as they are."""
        return images if images.ndim == 2 else self.network.convention.apply(images)

    def outputs(self, images: Tensor) -> Tensor:
        """The network's embeddings, not scaled to unit length."""
        embeddings: Tensor = self.network(images)
        return embeddings

    def losses_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The terms of the objective on this batch."""
        batch.watch(outputs.detach())
        return self.objective.terms(outputs, batch.labels, index=batch.index)

    def begin_step(self, step: int) -> bool:
        """Let those parts of the network learn whose time has come by its freeze plan."""
        return self.network.begin_step(step)

    def begin_epoch(self, view: EmbeddingView, labels: Tensor) -> None:
        """Call `on_epoch(view, labels)` of every part of the objective that has it."""
        for part in self.objective.modules():
            if isinstance(part, BeginsEpochs):
                part.on_epoch(view, labels)

    def clustering(self) -> tuple[Tensor, Tensor] | None:
        """The clusters of the first part of the objective that keeps them."""
        kept = (part.groups() for part in self.objective.modules() if isinstance(part, Magnet))
        return next((one for one in kept if one is not None), None)

    def head_parameters(self) -> Iterable[nn.Parameter]:
        """The parameters of the network's head."""
        return self.network.head.parameters()

    def objective_parameters(self) -> Iterable[nn.Parameter]:
        """Proxies, boundaries and whatever else the objective learns."""
        return self.objective.parameters()
