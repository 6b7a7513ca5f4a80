"""Smooth-AP: average precision with sigmoids in place of comparisons."""

import torch
from torch import Tensor

from equimetric.components import loss
from equimetric.losses.triplet import pair_weight
from equimetric.ops.masks import has_any
from equimetric.ops.reductions import divide, mean_valid, row_sum
from equimetric.option_values import Positive
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform

__all__ = ["own_similarity", "smooth_ap", "with_query"]


def own_similarity(pairs: Pairs) -> Tensor:
    """(Q,) x·x, which is 1 for unit vectors and where nothing is known of the queries."""
    if pairs.queries is None:
        return pairs.similarity.new_ones(len(pairs.similarity))
    squares: Tensor = torch.linalg.vecdot(pairs.queries.embeddings, pairs.queries.embeddings)
    return squares.to(pairs.similarity)


def with_query(pairs: Pairs, similarity: Tensor, *, positive: bool) -> Pairs:
    """The pairs with one more reference, the first column: the query itself, at the (Q,) similarity given.

    It counts as a positive or, with positive=False, as neither positive nor negative.
    """
    own = similarity[:, None]
    marked = torch.full_like(own, positive, dtype=torch.bool)
    unmarked = torch.zeros_like(marked)
    return pairs.replace(
        similarity=torch.cat([own, pairs.similarity], 1),
        positive=torch.cat([marked, pairs.positive], 1),
        negative=torch.cat([unmarked, pairs.negative], 1),
        weight=None if pairs.weight is None else torch.cat([torch.ones_like(own), pairs.weight], 1),
    )


@loss(
    "smooth_ap",
    title="Smooth-AP",
    family="ap-surrogate",
    rowwise={"include_query": False},
    paper="Brown, Xie, Kalogeiton, Zisserman: Smooth-AP, smoothing the path towards large-scale image retrieval (2020)",
    search={"tau": LogUniform(0.005, 0.1)},
    not_monotone="a positive that moves closer can fall in soft precision where it overtakes positives only",
)
def smooth_ap(pairs: Pairs, *, tau: Positive = 0.01, include_query: bool = False) -> Tensor:
    """Average precision of each query's ranking, with σ((s_j − s_i)/τ) for "j stands before i".

    G_ij = σ((s_qj − s_qi)/τ), AP_q = 1/|P_q| Σ_{i∈P_q} (1 + Σ_{j∈P_q, j≠i} G_ij) / (1 + Σ_{j≠i} G_ij);
    L = mean_q (1 − AP_q) = mean_q 1/|P_q| Σ_i n_i / (1 + p_i + n_i), n_i and p_i the sums over negatives and over the
    other positives, over queries with positives and negatives. `include_query` counts the query, at its similarity to
    itself, among its own positives, as the authors' code does.
    """
    ranks = has_any(pairs.positive) & has_any(pairs.negative)
    if include_query:
        pairs = with_query(pairs, own_similarity(pairs), positive=True)
    scaled = pairs.similarity / tau
    columns, is_positive = pairs.positive_columns()
    positive, multiplicity = scaled.gather(1, columns), pair_weight(pairs, columns)
    missed = scaled.sum(1) * 0
    for slot in range(columns.shape[1]):
        own = positive[:, slot, None]
        negatives_before = row_sum(torch.sigmoid(scaled - own), pairs.negative, pairs.weight)
        # The sum holds σ(0) = ½ for the positive itself, which counts 1.
        positives_before = 0.5 + row_sum(torch.sigmoid(positive - own), is_positive, multiplicity)
        share = negatives_before / (positives_before + negatives_before)
        missed = missed + torch.where(is_positive[:, slot], share * multiplicity[:, slot], 0)
    return mean_valid(divide(missed, row_sum(multiplicity, is_positive)), ranks)
