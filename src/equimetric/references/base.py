"""The interface of references: `ObjectiveInputs` in, weighted `Pairs` out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry
from equimetric.pairs import Pairs
from equimetric.references.relation import Labels

__all__ = ["ObjectiveInputs", "PairTerms", "ProxySet", "References"]


class ProxySet(NamedTuple):
    """Learned vectors that represent classes."""

    vectors: Tensor
    """(rows, D), as stored."""
    labels: Tensor
    """(rows,) the class of each."""


@dataclass(frozen=True, eq=False)
class ObjectiveInputs:
    """The arguments of an objective's call.

    Attributes:
        embeddings: (Q, D) of the queries.
        labels: class ids (Q,), a multi-hot matrix (Q, C), or the masks (positive, negative) of the pairs.
        index: (Q,) positions in the training set.
        proxies: what the other terms of a sum learn, for references that need it.
        reference_embeddings, reference_labels: an explicit reference set.
        self_mask: (Q, R), the references that are the query itself.
        sample_weight, reference_weight: (Q,) and (R,) how often each sample counts; None is once.
    """

    embeddings: Tensor
    labels: Labels
    index: Tensor | None = None
    proxies: tuple[ProxySet, ...] = field(default=(), kw_only=True)
    reference_embeddings: Tensor | None = None
    reference_labels: Labels | None = None
    self_mask: Tensor | None = None
    sample_weight: Tensor | None = None
    reference_weight: Tensor | None = None

    def reject_reference_set(self, compared_with: str) -> None:
        """Raise an error where the caller gives a reference set to references that have their own."""
        arguments = (self.reference_embeddings, self.reference_labels, self.self_mask, self.reference_weight)
        if any(argument is not None for argument in arguments):
            raise EquimetricError(
                f"this objective compares with {compared_with} and takes no reference_embeddings; "
                "choose references='batch' to compare with a set of your own"
            )


class PairTerms(NamedTuple):
    """The pairs that references make. The objective is factor · (Σ weight · loss(pairs) + penalty)."""

    weighted_pairs: list[tuple[float, Pairs]]
    """Each set of pairs with its weight; at least one set."""
    penalty: Tensor | None = None
    """A scalar that depends on the references alone, such as a regulariser of learned centres."""
    factor: Tensor | None = None
    """NaN where an embedding is NaN or infinite, else 1; None where all are known to be finite."""

    def has_nan(self) -> bool:
        """Whether an embedding is NaN or infinite; waits for an accelerator."""
        return self.factor is not None and bool(self.factor.isnan())

    def combine(self, values: Sequence[Tensor]) -> Tensor:
        """Combine the losses of the sets of pairs into the objective.

        Without a reduction, losses of different queries are concatenated and those of the same queries are added.
        """
        total, *rest = values
        if rest and total.ndim and self.weighted_pairs[0][1].queries is not self.weighted_pairs[1][1].queries:
            total = torch.cat([total, *rest])
        else:
            weight = self.weighted_pairs[0][0]
            total = total if weight == 1 else weight * total
            for (weight, _), value in zip(self.weighted_pairs[1:], rest, strict=True):
                if value.shape != total.shape:
                    raise EquimetricError("reduction='none' gives each set of pairs its own terms; use another one")
                total = total + weight * value
        total = total if self.penalty is None else total + self.penalty.to(total)
        return total if self.factor is None else total * self.factor.to(total)


class References(nn.Module):
    """The vectors that queries are compared with. A subclass makes the pairs and may keep state between steps.

    Attributes:
        needs_proxies: whether the pairs are made of the `proxy_set` of the other terms of a sum.

    """

    needs_proxies: ClassVar[bool] = False

    def forward(self, geometry: Geometry, normalize: bool, inputs: ObjectiveInputs) -> PairTerms:
        """Make the pairs of a batch. State is changed in `after_loss`, except the count of a sampler's draws."""
        raise NotImplementedError

    def after_loss(self, terms: PairTerms) -> None:
        """Update the state, e.g. store the batch in a memory. Called by the objective once per computed loss."""

    def proxy_set(self) -> ProxySet | None:
        """The learned vectors that represent the classes, where there are any."""
        return None
