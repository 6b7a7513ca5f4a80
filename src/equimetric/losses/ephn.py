"""Easy-positive softmax loss: only the closest positive, against the closest negative."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.pairs import Pairs
from equimetric.reductions import mean_valid, row_max
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
    closest_positive = row_max(similarity, pairs.positive)
    negative = pairs.negative & (similarity < closest_positive) if semihard else pairs.negative
    valid = pairs.positive.any(1) & negative.any(1)
    violation = (row_max(similarity, negative) - closest_positive)[:, 0]
    # An empty row holds infinities, which would leave a gradient of NaN behind.
    finite = torch.where(valid, violation, torch.zeros_like(violation))
    return mean_valid(softplus(finite / sigma), valid)
