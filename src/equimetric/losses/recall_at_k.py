"""Recall@k surrogate, optionally with virtual samples mixed from the similarities (SiMix)."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.losses.preconditions import whole_batch
from equimetric.losses.smooth_ap import own_similarity, with_query
from equimetric.losses.triplet import pair_weight
from equimetric.ops.chunks import compute_chunked
from equimetric.ops.masks import has_any
from equimetric.ops.reductions import mean_valid, row_sum
from equimetric.option_values import Positive
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform

__all__ = ["mixed_pairs", "recall_at_k_surrogate"]


@loss(
    "recall_at_k_surrogate",
    title="RS@k",
    family="ap-surrogate",
    paper="Patel, Tolias, Matas: Recall@k surrogate loss with large batches and similarity mixup (2022)",
    search={"tau1": LogUniform(0.5, 5.0), "tau2": LogUniform(0.005, 0.1)},
    not_monotone="a positive far below rank k that moves closer can push a positive at rank k out",
)
def recall_at_k_surrogate(
    pairs: Pairs,
    *,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    tau1: Positive = 1.0,
    tau2: Positive = 0.01,
    include_query: bool = False,
    simix: bool = False,
) -> Tensor:
    """Share of the positives that are among the first k, with soft ranks and soft counts.

    r_qi = 1 + Σ_{j≠i} σ((s_qj − s_qi)/τ₂), R_q^k = min(Σ_{i∈P_q} σ((k − r_qi)/τ₁), k) / min(k, |P_q|);
    L = mean_q (1 − mean_{k∈ks} R_q^k), k at most the size of the batch; never 0, as σ(0) = ½ for a first rank at k = 1.
    `include_query` leaves the query among the ranked items, as the authors' code does. `simix` adds a virtual sample
    between every two samples of a class (see `mixed_pairs`), mixed at random by torch's global generator.
    """
    ranks = whole_ranks(ks)
    if simix:
        pairs = mixed_pairs(pairs)
    if include_query:
        pairs = with_query(pairs, pairs.similarity.diagonal() if simix else own_similarity(pairs), positive=False)
    value = partial(soft_recall, ks=ranks, tau1=tau1, tau2=tau2, include_query=include_query)
    # Mixing joins rows, so large batches can be computed a few rows at a time only from here on.
    return compute_chunked(value, pairs)


def whole_ranks(ks: Sequence[int]) -> list[int]:
    """The ranks as a list of whole numbers, of which there is one at least."""
    try:
        ranks = [int(k) for k in ks]
    except (TypeError, ValueError):
        ranks = []
    if not ranks or min(ranks) < 1 or any(k != rank for k, rank in zip(ks, ranks, strict=True)):
        raise EquimetricError(f"loss 'recall_at_k_surrogate' needs ranks such as ks=(1, 2, 4), got ks={ks!r}")
    return ranks


def soft_recall(pairs: Pairs, *, ks: Sequence[int], tau1: float, tau2: float, include_query: bool) -> Tensor:
    """The loss of pairs; with `include_query` their first column is the query itself."""
    ranked = pairs.any
    if include_query:
        ranked = torch.cat([torch.ones_like(ranked[:, :1]), ranked[:, 1:]], 1)
    scaled = pairs.similarity / tau2
    columns, is_positive = pairs.positive_columns()
    present = is_positive * pair_weight(pairs, columns)
    size = 1 + row_sum(torch.ones_like(scaled), pairs.any, pairs.weight)
    k = torch.minimum(scaled.new_tensor(list(ks))[None, :], size[:, None])
    found = (k + scaled.sum(1, keepdim=True)) * 0
    for column, times in zip(columns.T, present.T, strict=True):
        before = torch.sigmoid(scaled - scaled.gather(1, column[:, None]))
        # The sum holds σ(0) = ½ for the positive itself, which counts 1.
        rank = 0.5 + row_sum(before, ranked, pairs.weight)
        found = found + torch.sigmoid((k - rank[:, None]) / tau1) * times[:, None]
    possible = torch.minimum(k, present.sum(1, keepdim=True)).clamp_min(1)
    recall = torch.minimum(found, k) / possible
    return mean_valid(1 - recall.mean(1), has_any(pairs.positive) & has_any(pairs.negative))


def mixed_pairs(pairs: Pairs, share: Tensor | None = None) -> Pairs:
    """The batch with a virtual sample v = a x_i + (1 − a) x_j for every two samples i < j of a class.

    Virtual samples are not scaled to unit length, so s(v, z) = a s_iz + (1 − a) s_jz: mixing similarities is enough.
    They follow the real samples as queries, positives and negatives. `share` holds each pair's a, in order of (i, j).
    """
    _, labels = whole_batch(pairs, "recall_at_k_surrogate")
    first, second = pairs.positive.triu().nonzero(as_tuple=True)
    if share is None:
        share = torch.rand(len(first), dtype=pairs.similarity.dtype, device=labels.device)

    def mixed(rows: Tensor) -> Tensor:
        return torch.cat([rows, share[:, None] * rows[first] + (1 - share)[:, None] * rows[second]])

    labels = torch.cat([labels, labels[first]])
    same = labels[:, None] == labels[None, :]
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return Pairs(mixed(mixed(pairs.similarity).T).T, same & ~itself, ~same, geometry=pairs.geometry)
