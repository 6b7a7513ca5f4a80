"""What every learner must offer to the training loop."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from equimetric.batches.base import EmbeddingView
from equimetric.data.transforms import prepare

__all__ = ["Batch", "Learner"]


@dataclass(frozen=True, eq=False)
class Batch:
    """A training batch: prepared images, class ids 0 … C − 1, and each sample's place in the training set.

    `watch` is to be called with the (B, D) embeddings that the learner forms, for batches that adapt to them.
    """

    images: Tensor
    labels: Tensor
    index: Tensor
    watch: Callable[[Tensor], None]


class Learner(nn.Module):
    """Forms embeddings and says what is minimised, in two parts: first image by image, then of the whole batch.

    The loop calls `outputs` on all images of a batch at once or on some at a time, and `losses_of` on all of them.

    Everything a learner keeps (proxies, queues, cluster ids, policies) is in its `state_dict()`, so that a killed run
    resumes exactly.
    """

    def embed(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, D) unit-length embeddings: what is deployed and evaluated."""
        raise NotImplementedError

    def prepare(self, images: Tensor) -> Tensor:
        """Stored images (uint8) or feature vectors as the network takes them."""
        return prepare(images)

    def outputs(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, …) what the losses need of each image: every row depends on its own image alone."""
        raise NotImplementedError

    def losses_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Named terms, from the outputs of the whole batch; the loop adds them up and logs each."""
        raise NotImplementedError

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Named terms of a batch."""
        return self.losses_of(self.outputs(batch.images), batch)

    def forward(self, work: Callable[[], Any]) -> Any:
        """Do some work with the learner's parameters, in a form that `DistributedDataParallel` can wrap."""
        return work()

    def head_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters between the trunk's features and the embedding: they may have a learning rate of their own."""
        return ()

    def objective_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters of the objective itself (proxies, boundaries): they have a learning rate of their own."""
        return ()

    def begin_step(self, step: int) -> bool:  # noqa: ARG002
        """Optional work before step number `step`; true where other parameters learn from here on than before."""
        return False

    def begin_epoch(self, view: EmbeddingView, labels: Tensor) -> None:
        """Optional work at the start of every epoch, i.e. after each validation.

        `view()` gives the embeddings of the training set, computed on demand; `labels` are its class ids.
        """

    def clustering(self) -> tuple[Tensor, Tensor] | None:
        """Clusters of the training set that the objective keeps, for batches that are drawn by them."""
        return None
