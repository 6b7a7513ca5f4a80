"""Recall@k surrogate, optionally with virtual samples mixed from the similarities (SiMix)."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.losses.smooth_ap import soft_rank
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform


@loss(
    "recall_at_k_surrogate",
    title="RS@k",
    family="ap-surrogate",
    per_query=True,
    paper="Patel, Tolias, Matas: Recall@k surrogate loss with large batches and similarity mixup (2022)",
    search={"tau1": LogUniform(0.5, 5.0), "tau2": LogUniform(0.005, 0.1)},
    exempt={
        "monotone": "a positive far below rank k that moves closer can push a positive at rank k out",
        "large static shapes": "many positives are listed, each to be compared with all references",
    },
    known_as=("RecallAtK", "RS@k"),
)
def recall_at_k_surrogate(
    pairs: Pairs,
    *,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    tau1: PositiveFloat = 1.0,
    tau2: PositiveFloat = 0.01,
    include_query: bool = False,
    simix: bool = False,
) -> Tensor:
    """Maximize the fraction of positives among the first k, with soft ranks and soft counts.

    r_qi = 1 + Σ_{j≠i} σ((s_qj − s_qi)/τ₂), R_q^k = min(Σ_{i∈P_q} σ((k − r_qi)/τ₁), k) / min(k, |P_q|);
    L = mean_q (1 − mean_{k∈ks} R_q^k), k at most the size of the batch; never 0, as σ(0) = ½ for a first rank at k = 1.
    `include_query` leaves the query among the ranked items, as the authors' code does. `simix` adds a virtual sample
    between every two samples of a class (see `mix_pairs`), mixed at random by torch's global generator.
    """
    ranks = check_ranks(ks)
    if simix:
        pairs = mix_pairs(pairs)
    if include_query:
        self_similarity = pairs.similarity.diagonal() if simix else pairs.self_similarity()
        pairs = pairs.add_query(self_similarity, positive=False)
    # Mixing joins rows; from here on they meet only in the mean.
    return ops.special.compute_separable(
        partial(soft_recall, ks=ranks, tau1=tau1, tau2=tau2, include_query=include_query), pairs
    )


def check_ranks(ks: Sequence[int]) -> list[int]:
    """The ranks as a list of integers, at least one."""
    try:
        ranks = [int(k) for k in ks]
    except (TypeError, ValueError):
        ranks = []
    if not ranks or min(ranks) < 1 or any(k != rank for k, rank in zip(ks, ranks, strict=True)):
        raise EquimetricError(f"loss 'recall_at_k_surrogate' needs ranks such as ks=(1, 2, 4), got ks={ks!r}")
    return ranks


def soft_recall(pairs: Pairs, *, ks: Sequence[int], tau1: float, tau2: float, include_query: bool) -> Tensor:
    """The loss of pairs; with `include_query` their first column is the query itself."""
    ranked = pairs.mask
    if include_query:
        ranked = torch.cat([torch.ones_like(ranked[:, :1]), ranked[:, 1:]], 1)
    logits = pairs.similarity / tau2
    size = 1 + ops.row_sum(torch.ones_like(logits), pairs.mask, pairs.weight)
    k = torch.minimum(logits.new_tensor(list(ks))[None, :], size[:, None])
    num_retrieved = (k + logits.sum(1, keepdim=True)) * 0
    positive = ops.special.list_positives(pairs)
    for part, part_logits in positive.split(positive.gather(logits)):
        # The sum holds σ(0) = ½ for the positive itself, which counts 1.
        rank = 0.5 + soft_rank(part_logits, logits, ranked, pairs.weight)
        in_top_k = torch.sigmoid((k[:, :, None] - rank[:, None]) / tau1)
        num_retrieved = num_retrieved + ops.row_sum(
            in_top_k, part.mask[:, None], None if part.weight is None else part.weight[:, None]
        )
    num_positives = ops.row_sum(torch.ones_like(logits), pairs.positive, pairs.weight)[:, None]
    recall = torch.minimum(num_retrieved, k) / torch.minimum(k, num_positives).clamp_min(1)
    return ops.mean(1 - recall.mean(1), ops.has_any(pairs.positive) & ops.has_any(pairs.negative))


def mix_pairs(pairs: Pairs, lam: Tensor | None = None) -> Pairs:
    """The batch with a virtual sample v = a x_i + (1 − a) x_j for every two samples i < j of a class.

    Virtual samples are not scaled to unit length, so s(v, z) = a s_iz + (1 − a) s_jz: mixing similarities is enough.
    They follow the real samples as queries, positives and negatives. `lam` holds each pair's a, in order of (i, j).
    """
    _, labels = ops.require.whole_batch(pairs, "recall_at_k_surrogate")
    first, second = pairs.positive.triu().nonzero(as_tuple=True)
    if lam is None:
        lam = torch.rand(len(first), dtype=pairs.similarity.dtype, device=labels.device)

    def mix(rows: Tensor) -> Tensor:
        return torch.cat([rows, lam[:, None] * rows[first] + (1 - lam)[:, None] * rows[second]])

    labels = torch.cat([labels, labels[first]])
    same = labels[:, None] == labels[None, :]
    eye = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return Pairs(mix(mix(pairs.similarity).T).T, same & ~eye, ~same, geometry=pairs.geometry)
