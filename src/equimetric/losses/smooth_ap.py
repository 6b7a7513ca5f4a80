"""Smooth-AP: average precision with sigmoids in place of comparisons."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform


@loss(
    "smooth_ap",
    title="Smooth-AP",
    family="ap-surrogate",
    separable={"include_query": False},
    paper="Brown, Xie, Kalogeiton, Zisserman: Smooth-AP, smoothing the path towards large-scale image retrieval (2020)",
    search={"tau": LogUniform(0.005, 0.1)},
    exempt={
        "monotone": "a positive that moves closer can fall in soft precision where it overtakes positives only",
        "large static shapes": "many positives are listed, each to be compared with all references",
    },
)
def smooth_ap(pairs: Pairs, *, tau: PositiveFloat = 0.01, include_query: bool = False) -> Tensor:
    """Maximize the average precision of each query's ranking, with σ((s_j − s_i)/τ) for "j stands before i".

    G_ij = σ((s_qj − s_qi)/τ), AP_q = 1/|P_q| Σ_{i∈P_q} (1 + Σ_{j∈P_q, j≠i} G_ij) / (1 + Σ_{j≠i} G_ij);
    L = mean_q (1 − AP_q) = mean_q 1/|P_q| Σ_i n_i / (1 + p_i + n_i), n_i and p_i the sums over negatives and over the
    other positives, over queries with positives and negatives. `include_query` counts the query, at its similarity to
    itself, among its own positives, as the authors' code does.
    """
    valid = ops.has_any(pairs.positive) & ops.has_any(pairs.negative)
    if include_query:
        pairs = pairs.add_query(pairs.self_similarity(), positive=True)
    logits, positive = pairs.similarity / tau, ops.special.list_positives(pairs)
    positive_logits = positive.gather(logits)
    missed = logits.sum(1) * 0
    for part, part_logits in positive.split(positive_logits):
        before = soft_rank(part_logits, logits, pairs.negative, pairs.weight)
        # The sum holds σ(0) = ½ for the positive itself, which counts 1.
        rank = 0.5 + soft_rank(part_logits, positive_logits, positive.mask, positive.weight) + before
        missed = missed + ops.row_sum(before / rank, part.mask, part.weight)
    num_positives = ops.row_sum(torch.ones_like(positive_logits), positive.mask, positive.weight)
    return ops.mean(ops.divide(missed, num_positives), valid)


def soft_rank(positive_logits: Tensor, logits: Tensor, mask: Tensor, weight: Tensor | None) -> Tensor:
    """(Q, K) Σ_j σ(z_j − z_i) over the entries of (Q, R) logits in the mask: the soft count ranked before each i."""
    before = torch.sigmoid(logits[:, None] - positive_logits[:, :, None])
    return ops.row_sum(before, mask[:, None], None if weight is None else weight[:, None])
