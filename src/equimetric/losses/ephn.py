"""Easy-positive softmax loss: only the closest positive, against the closest negative."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.masks import has_any
from equimetric.pairs import Pairs
from equimetric.reductions import mean_valid
from equimetric.registry import loss
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
def ephn(pairs: Pairs, *, sigma: float = 0.1, semihard: bool = False) -> Tensor:
    """An anchor need only be close to its closest positive, not to all of its class.

    L = mean_a softplus((s_an − s_ap) / σ), p the most similar positive, n the most similar negative or, `semihard`,
    the most similar one with s_an < s_ap; anchors without either are left out.
    """
    similarity = pairs.similarity
    closest_positive = most_similar(similarity, pairs.positive)
    negative = pairs.negative & (similarity < closest_positive[:, None]) if semihard else pairs.negative
    valid = has_any(pairs.positive) & has_any(negative)
    violation = most_similar(similarity, negative) - closest_positive
    # An empty row holds infinities, which would leave a gradient of NaN behind.
    finite = torch.where(valid, violation, torch.zeros_like(violation))
    return mean_valid(softplus(finite / sigma), valid)


def most_similar(similarity: Tensor, mask: Tensor) -> Tensor:
    """(Q,) the largest entry of each row, the first among equals also for the gradient; −∞ for an empty row."""
    return torch.where(mask, similarity, -torch.inf).max(1).values
