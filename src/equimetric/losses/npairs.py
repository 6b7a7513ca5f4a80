"""N-pairs loss: one pair per class, each positive against the positives of all other classes."""

from typing import NamedTuple

import torch
from torch import Tensor

from equimetric.components import loss
from equimetric.errors import EquimetricError, unknown_name
from equimetric.losses.preconditions import check_square_batch, known_queries
from equimetric.losses.supcon import supcon
from equimetric.ops.masks import has_any
from equimetric.ops.products import plain_arithmetic
from equimetric.ops.reductions import FAR_BELOW, mean_valid
from equimetric.option_values import NotNegative
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["first_pairs", "npairs"]


class FirstPairs(NamedTuple):
    """N pairs, one per class. Where shapes cannot depend on data, as when compiling, one for every query instead."""

    anchor: Tensor
    """(N,) rows."""
    positive: Tensor
    """(N,) columns."""
    present: Tensor
    """(N,) bool: which of them are such pairs."""
    competes: Tensor
    """(N, N) bool: [i, j] where the positive of pair j is one of the negatives of anchor i."""

    def logits(self, similarity: Tensor) -> Tensor:
        """(N, N) similarities of anchors and positives."""
        return similarity.index_select(0, self.anchor).index_select(1, self.positive)


def first_pairs(pairs: Pairs, loss: str) -> FirstPairs:
    """One (anchor, positive) per class: its first row that has a positive, and that row's first positive.

    Doubling a reference changes nothing, as one is chosen per class: of a weight only its presence counts.
    """
    labels = known_queries(pairs, loss).labels
    if labels is None:
        raise EquimetricError(f"loss {loss!r} takes one pair per class; give one class id per sample as labels")
    has_positive = has_any(pairs.positive)
    earlier = (labels[:, None] == labels).tril_(-1) & has_positive
    is_anchor = has_positive & ~has_any(earlier)
    anchor = torch.arange(len(labels), device=labels.device)
    if not plain_arithmetic():
        anchor = anchor[is_anchor]
    rows, present = pairs.negative.index_select(0, anchor), is_anchor[anchor]
    positive = pairs.positive.index_select(0, anchor).view(torch.uint8).argmax(1)
    return FirstPairs(anchor, positive, present, rows.index_select(1, positive) & present)


@loss(
    "npairs",
    title="N-pairs",
    family="ranking",
    paper="Sohn: Improved deep metric learning with multi-class N-pair loss objective (2016)",
    geometry="dot",
    references="batch",
    takes="batch",
    search={"l2_reg": Uniform(0.0, 0.02)},
)
def npairs(pairs: Pairs, *, l2_reg: NotNegative = 0.002, symmetric: bool = False, repeated: str = "first") -> Tensor:
    """Softmax over one positive against the positives of all other classes, on raw dot products.

    L = 1/N Σ_i log(1 + Σ_{j≠i} e^{a_i·p_j − a_i·p_i}) + l2_reg/4 (mean‖a‖² + mean‖p‖²), (a_i, p_i) the first two rows
    of each of the N classes that have two; a batch a_1 … a_N, p_1 … p_N gives just these. `symmetric` averages it
    with the loss of the reversed pairs, log(1 + Σ_{j≠i} e^{a_j·p_i − a_i·p_i}). A single pair has nothing to be
    compared with, and no loss.
    With repeated='soft' all rows are anchors and all references count, however often a class is among them: the
    cross-entropy of a_i·p_j with targets that the positives of a row share equally.
    """
    if repeated not in ("first", "soft"):
        raise unknown_name("way with repeated classes", repeated, ("first", "soft"))
    if repeated == "soft":
        value = supcon(pairs, temperature=1.0)
        if symmetric:
            value = (value + supcon(turned(pairs), temperature=1.0)) / 2
        if l2_reg:
            anchors, positives = squared_lengths(pairs)
            value = value + l2_reg / 4 * mean_valid(anchors, has_any(pairs.positive) & has_any(pairs.negative))
            wanted = has_any(pairs.positive.T) & has_any(pairs.negative.T)
            value = value + l2_reg / 4 * mean_valid(positives, wanted)
        return value
    chosen = first_pairs(pairs, "npairs")
    compared = chosen.present & has_any(chosen.competes)
    logits = chosen.logits(pairs.similarity)
    values = against_own(logits, chosen.competes)
    if symmetric:
        values = (values + against_own(logits.T, chosen.competes.T & chosen.present)) / 2
    if l2_reg:
        anchors, positives = squared_lengths(pairs)
        values = values + l2_reg / 4 * (anchors[chosen.anchor] + positives[chosen.positive])
    return mean_valid(values, compared)


def squared_lengths(pairs: Pairs) -> tuple[Tensor, Tensor]:
    """(Q,) ‖x‖² of the queries and (R,) of the references, which are the same or an explicit set."""
    queries = known_queries(pairs, "npairs")
    of_queries = queries.embeddings.square().sum(1)
    if queries.references is not None:
        return of_queries, queries.references.square().sum(1)
    check_square_batch(pairs, "npairs")
    return of_queries, of_queries


def turned(pairs: Pairs) -> Pairs:
    """The references as queries."""
    weight = None if pairs.weight is None else pairs.weight.T
    return Pairs(pairs.similarity.T, pairs.positive.T, pairs.negative.T, weight, geometry=pairs.geometry)


def against_own(logits: Tensor, competes: Tensor) -> Tensor:
    """(N,) log(1 + Σ_j e^{z_ij − z_ii}) over the j that compete with i: the cross-entropy of the diagonal.

    Marks i as its own competitor in `competes`.
    """
    own = torch.arange(len(logits), device=logits.device)
    present = torch.where(competes.fill_diagonal_(True), logits, FAR_BELOW)
    return torch.nn.functional.cross_entropy(present, own, reduction="none")
