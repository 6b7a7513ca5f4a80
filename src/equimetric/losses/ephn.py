"""Easy-positive softmax loss: only the closest positive, against the closest negative."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.components import loss
from equimetric.ops.masks import has_any
from equimetric.ops.reductions import mean_valid
from equimetric.option_values import Positive
from equimetric.pairs import Pairs, round_ties
from equimetric.search_space import Uniform

__all__ = ["ephn"]


@loss(
    "ephn",
    title="EPHN",
    family="ranking",
    rowwise=True,
    paper="Xuan, Stylianou, Pless: Improved embeddings with easy positive triplet mining (2020)",
    search={"sigma": Uniform(0.05, 0.5)},
)
def ephn(pairs: Pairs, *, sigma: Positive = 0.1, semihard: bool = False) -> Tensor:
    """An anchor need only be close to its closest positive, not to all of its class.

    L = mean_a softplus((s_an − s_ap) / σ), p the most similar positive, n the most similar negative or, `semihard`,
    the most similar one with s_an < s_ap; anchors without either are left out.
    """
    similarity, ranks = pairs.similarity, round_ties(pairs.similarity)
    positive = most_similar(ranks, pairs.positive)
    negative = pairs.negative & (ranks < ranks.gather(1, positive)) if semihard else pairs.negative
    valid = has_any(pairs.positive) & has_any(negative)
    violation = (similarity.gather(1, most_similar(ranks, negative)) - similarity.gather(1, positive))[:, 0]
    return mean_valid(softplus(violation / sigma), valid)


def most_similar(ranks: Tensor, mask: Tensor) -> Tensor:
    """(Q, 1) the column of the largest entry of each row, the first among equals; any column for an empty row."""
    return torch.where(mask, ranks, -torch.inf).max(1, keepdim=True).indices
