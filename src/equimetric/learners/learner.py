"""What every learner must offer to the training loop."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from equimetric.batches.base import EmbeddingView

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
    """Forms embeddings and says what is minimised.

    Everything a learner keeps (proxies, queues, cluster ids, policies) is in its `state_dict()`, so that a killed run
    resumes exactly.
    """

    def embed(self, images: Tensor) -> Tensor:
        """(B, C, H, W) → (B, D) unit-length embeddings: what is deployed and evaluated."""
        raise NotImplementedError

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Named terms; the loop adds them up and logs each."""
        raise NotImplementedError

    def objective_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters of the objective itself (proxies, boundaries): they get a learning rate of their own."""
        return ()

    def begin_epoch(self, view: EmbeddingView, labels: Tensor) -> None:
        """Optional work at the start of every epoch, i.e. after each validation.

        `view()` gives the embeddings of the training set, computed on demand; `labels` are its class ids.
        """
