"""What every kind of references offers to an objective."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry
from equimetric.pairs import Pairs
from equimetric.references.relation import Labels

__all__ = ["Given", "References"]


@dataclass(frozen=True, eq=False)
class Given:
    """What the caller of an objective gave.

    Attributes:
        embeddings: (Q, D) of the queries.
        labels: class ids (Q,), a multi-hot matrix (Q, C), or the masks (positive, negative) of the pairs.
        index: (Q,) places in the training set.
        reference_embeddings, reference_labels: an explicit reference set.
        self_mask: (Q, R), the references that are the query itself.
    """

    embeddings: Tensor
    labels: Labels
    index: Tensor | None = None
    reference_embeddings: Tensor | None = None
    reference_labels: Labels | None = None
    self_mask: Tensor | None = None

    def refuse_references(self, what: str) -> None:
        """An error where the caller passes references of their own to a kind that has its own."""
        if any(one is not None for one in (self.reference_embeddings, self.reference_labels, self.self_mask)):
            raise EquimetricError(
                f"this objective compares with {what} and takes no reference_embeddings; "
                "choose references='batch' to compare with a set of your own"
            )


class References(nn.Module):
    """Turns embeddings and labels into pairs, and may add to the loss what only the references know."""

    def forward(self, geometry: Geometry, normalize: bool, given: Given) -> Pairs:
        """Make the (Q, R) pairs."""
        raise NotImplementedError

    def adds(self) -> str:
        """What these references add to the loss of their pairs, in words; nothing by default."""
        return ""

    def objective_value(self, loss: Callable[[Pairs], Tensor], pairs: Pairs) -> Tensor:
        """The value of the objective: the loss of the pairs, and whatever these references add to it."""
        return loss(pairs)
