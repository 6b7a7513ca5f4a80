"""N-pairs loss: one pair per class, each positive against the positives of all other classes."""

from typing import Literal

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.losses.supcon import supcon
from equimetric.option_values import NonNegativeFloat, RowReduction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

EXEMPT = {
    "permutation": "anchor and positive are the first two rows of a class",
    "multiplicity": "one pair is chosen per class, so a reference that is repeated is not chosen again",
    "repetition": "one pair is chosen per class, so a sample that is repeated is not chosen again",
}


@loss(
    "npairs",
    title="N-pairs",
    family="ranking",
    per_query=True,
    paper="Sohn: Improved deep metric learning with multi-class N-pair loss objective (2016)",
    geometry="dot",
    references="batch",
    takes="batch",
    search={"l2_reg": Uniform(0.0, 0.02)},
    exempt=EXEMPT,
    known_as=("NPairLoss", "MultiClassNPairLoss"),
)
def npairs(
    pairs: Pairs,
    *,
    l2_reg: NonNegativeFloat = 0.002,
    symmetric: bool = False,
    repeated: Literal["first", "soft"] = "first",
    reduction: RowReduction = "mean",
) -> Tensor:
    """Softmax over one positive against the positives of all other classes, on raw dot products.

    L = 1/N Σ_i log(1 + Σ_{j≠i} e^{a_i·p_j − a_i·p_i}) + l2_reg/4 (mean‖a‖² + mean‖p‖²), (a_i, p_i) the first two rows
    of each of the N classes that have two; a batch a_1 … a_N, p_1 … p_N gives just these. `symmetric` averages it
    with the loss of the reversed pairs, log(1 + Σ_{j≠i} e^{a_j·p_i − a_i·p_i}). A single pair has nothing to be
    compared with, and no loss.
    With repeated='soft' all rows are anchors and all references count, however often a class is among them: the
    cross-entropy of a_i·p_j with targets that the positives of a row share equally.
    A pair counts as often as its anchor, and in the sums of others as often as the sample they are compared with.
    `reduction` is one of the pairs, which are values of their anchors: 'mean', 'sum', 'batch' (the sum / number of
    samples) or 'none'.
    """
    if repeated == "soft":
        if reduction != "mean":
            raise EquimetricError(
                "npairs with repeated='soft' has the reductions 'mean' and 'query'; choose one of them"
            )
        return soft_npairs(pairs, l2_reg, symmetric)
    chosen = ops.special.first_pairs(pairs, "npairs")
    compared = chosen.is_pair & ops.has_any(chosen.competes)
    logits = chosen.logits(pairs.similarity)
    values = diagonal_cross_entropy(
        logits, chosen.competes, None if pairs.weight is None else chosen.logits(pairs.weight)
    )
    if symmetric:
        weight = None if pairs.query_weight is None else pairs.query_weight[chosen.anchor].expand_as(logits)
        values = (values + diagonal_cross_entropy(logits.T, chosen.competes.T & chosen.is_pair, weight)) / 2
    if l2_reg:
        anchors, positives = squared_norms(pairs)
        values = values + l2_reg / 4 * (anchors[chosen.anchor] + positives[chosen.positive])
    return chosen.reduce(values, compared, len(pairs.similarity), reduction)


def soft_npairs(pairs: Pairs, l2_reg: float, symmetric: bool) -> Tensor:
    """The loss with all rows as anchors."""
    value = supcon(pairs, temperature=1.0)
    if symmetric:
        weight = None if pairs.query_weight is None else pairs.query_weight.expand(len(pairs.similarity.T), -1)
        reverse = Pairs(pairs.similarity.T, pairs.positive.T, pairs.negative.T, weight, geometry=pairs.geometry)
        with ops.special.weigh_references(pairs):
            value = (value + supcon(reverse, temperature=1.0)) / 2
    if l2_reg:
        anchors, positives = squared_norms(pairs)
        valid_anchors = ops.has_any(pairs.positive) & ops.has_any(pairs.negative)
        valid_positives = ops.has_any(pairs.positive.T) & ops.has_any(pairs.negative.T)
        value = value + l2_reg / 4 * ops.mean(anchors, valid_anchors)
        with ops.special.weigh_references(pairs):
            value = value + l2_reg / 4 * ops.mean(positives, valid_positives)
    return value


def squared_norms(pairs: Pairs) -> tuple[Tensor, Tensor]:
    """(Q,) ‖x‖² of the queries and (R,) of the references, which are the same or an explicit set."""
    queries = ops.require.queries(pairs, "npairs")
    query_squares = queries.embeddings.square().sum(1)
    if queries.references is not None:
        return query_squares, queries.references.square().sum(1)
    ops.require.square_batch(pairs, "npairs")
    return query_squares, query_squares


def diagonal_cross_entropy(logits: Tensor, competes: Tensor, weight: Tensor | None) -> Tensor:
    """(N,) log(1 + Σ_j w_ij e^{z_ij − z_ii}) over the j that compete with i: the cross-entropy of the diagonal.

    Marks i as its own competitor in `competes`.
    """
    index = torch.arange(len(logits), device=logits.device)
    if weight is not None:
        eye = index[:, None] == index
        logits = logits + weight.masked_fill(eye | ~competes, 1).log()
    logits_in_sum = torch.where(competes.fill_diagonal_(True), logits, -torch.inf)
    return torch.nn.functional.cross_entropy(logits_in_sum, index, reduction="none")
