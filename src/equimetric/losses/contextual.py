"""Contextual similarity: two samples are as similar as their neighbourhoods in the batch."""

from typing import Annotated

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.option_values import NonNegativeFloat, PositiveFloat, Range
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform

ROUNDING_SHARE = 1e-6
"""Share of the batch up to which what lies outside a neighbourhood is rounding."""


@loss(
    "contextual",
    title="Contextual similarity",
    family="contextual",
    per_query=True,
    paper="Liao, Tsiligkaridis, Kulis: Supervised metric learning to rank via contextual similarity (2023)",
    references="batch",
    takes="batch",
    search={"epsilon": Uniform(0.0, 0.2), "slope": LogUniform(1.0, 100.0)},
    exempt={
        "finite differences": "membership in a neighbourhood is a step, which is given a slope by definition",
        "monotone": "a pair is also moved for the sake of other pairs; with keep_signs it is not",
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
        "any batch": "a neighbourhood of k samples needs a batch of more",
    },
    known_as=("ContextualLoss", "ContextualSimilarity"),
)
def contextual(
    pairs: Pairs,
    *,
    k: Annotated[int, Range(2)] = 4,
    epsilon: NonNegativeFloat = 0.05,
    slope: PositiveFloat = 10.0,
    keep_signs: bool = False,
) -> Tensor:
    """Samples of one class must have the same neighbours, samples of different classes none in common.

    d = 2 − 2s; N_ij = 1[d_ij ≤ δ_i(k) + ε], δ_i(n) the n-th smallest d of row i, i itself included; M_ij the same with
    δ_i(k/2), rounded down. W = ½ (|N_i ∩ N_j| / |N_i| + |N̄_i ∩ N̄_j| / |N̄_i|) N_ij; R_ij = M_ij M_ji;
    E_ij = Σ_l R_il W_lj / Σ_l R_il; w = ½ (E + Eᵀ), in [0, 1].
    L = B⁻² Σ_{i≠j} (1 − w_ij)² of positives, w_ij² of negatives.
    In the gradient ∂N_ij/∂d_ij = ∂M_ij/∂d_ij = −slope everywhere, while δ, |N_i| and |N̄_i| are constants. k is the
    number of samples of a class in the batch. With `keep_signs` no positive is pushed away and no negative pulled
    closer, as both may be for the sake of other pairs. The paper adds a contrastive loss and a target for the mean:
    "0.4*contextual + 0.5*contrastive_cosine + 0.1*mean_similarity", with pos_offset=0.75, lam=0.6 and
    reduction="nonzero" of contrastive_cosine.
    """
    ops.require.batch_embeddings(pairs, "contextual")
    similarity = pairs.similarity
    if len(similarity) <= k:
        raise EquimetricError(
            f"loss 'contextual' compares neighbourhoods of k={k} samples, which needs batches of more than {k}, "
            f"got {len(similarity)}; enlarge the batch or lower k"
        )
    if keep_signs:
        similarity = ops.special.keep_signs(similarity, pairs.positive, pairs.negative)
    distance = (2 - 2 * similarity).clamp_min(0)
    counts = torch.ones_like(distance[0]) if pairs.query_weight is None else pairs.query_weight.to(distance)
    ascending, order = distance.detach().sort(1)
    cumulative = counts[order].cumsum(1)
    near, mutual = (neighbours(distance, nth_smallest(ascending, cumulative, n) + epsilon, slope) for n in (k, k // 2))
    mutual = mutual * mutual.T * counts
    overlap = ops.divide(mutual @ shared_neighbours(near, counts), mutual.sum(1, keepdim=True))
    similar = (overlap + overlap.T) / 2
    terms = ops.row_sum((1 - similar).square(), pairs.positive, pairs.weight) + ops.row_sum(
        similar.square(), pairs.negative, pairs.weight
    )
    return ops.mean(ops.divide(terms, counts.sum()))


def nth_smallest(ascending: Tensor, cumulative: Tensor, n: int) -> Tensor:
    """(B, 1) of rising (B, B) values the first at which (B, B) counts reach a number, or else the last."""
    reached = cumulative >= n * (1 - ROUNDING_SHARE)
    reached[:, -1] = True
    return ascending.gather(1, reached.view(torch.uint8).argmax(1, keepdim=True))


def neighbours(distance: Tensor, radius: Tensor, slope: float) -> Tensor:
    """(B, B) 1 for samples within the (B, 1) radius, else 0, with gradient −slope by every distance."""
    fixed = distance.detach()
    return (fixed <= radius).to(distance) - slope * (distance - fixed)


def shared_neighbours(near: Tensor, counts: Tensor) -> Tensor:
    """(B, B) W: of neighbours, the mean share of common members of their neighbourhoods and of what is outside both."""
    neighbour_counts = near * counts
    size, total = neighbour_counts.sum(1, keepdim=True), counts.sum()
    inside = size.detach()
    outside = total - inside
    outside = torch.where(outside > ROUNDING_SHARE * total, outside, 0.0)
    common = neighbour_counts @ near.T
    both, neither = ops.divide(common, inside), ops.divide(total - size - size.T + common, outside)
    return (both + neither) / 2 * near
