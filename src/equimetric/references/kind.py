"""What every kind of references offers to an objective."""

from collections.abc import Callable

from torch import Tensor, nn

from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry
from equimetric.pairs import Pairs
from equimetric.references.relation import Labels

__all__ = ["References"]


class References(nn.Module):
    """Turns embeddings and labels into pairs, and may add to the loss what only the references know."""

    def forward(
        self,
        geometry: Geometry,
        normalize: bool,
        embeddings: Tensor,
        labels: Labels,
        *,
        index: Tensor | None = None,
        reference_embeddings: Tensor | None = None,
        reference_labels: Labels | None = None,
        self_mask: Tensor | None = None,
    ) -> Pairs:
        """Make the (Q, R) pairs."""
        raise NotImplementedError

    def objective_value(self, loss: Callable[[Pairs], Tensor], pairs: Pairs) -> Tensor:
        """The value of the objective: the loss of the pairs, and whatever these references add to it."""
        return loss(pairs)

    def refuse_explicit_references(self, what: str, *given: object) -> None:
        """An error where the caller passes references of their own to a kind that has its own."""
        if any(one is not None for one in given):
            raise EquimetricError(
                f"this objective compares with {what} and takes no reference_embeddings; "
                "choose references='batch' to compare with a set of your own"
            )
