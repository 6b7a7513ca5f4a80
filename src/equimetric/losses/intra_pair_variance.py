"""The intra-pair variance that goes with the tuplet margin loss."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs


@loss(
    "intra_pair_variance",
    title="Intra-pair variance",
    family="regulariser",
    paper="Yu, Tao: Deep metric learning with tuplet margin loss (2019)",
    exempt={"monotone": "a closer easy positive raises the mean that all positives are held to; negatives likewise"},
)
def intra_pair_variance(pairs: Pairs, *, pos_eps: float = 0.01, neg_eps: float = 0.01) -> Tensor:
    """Hold positives near their mean similarity from below, negatives from above; add 0.5 of it to tuplet margin.

    L = mean_{positives} [(1 − ε⁺) S̄⁺ − s]₊² + mean_{negatives} [s − (1 + ε⁻) S̄⁻]₊², S̄ the means over the batch,
    through which gradients flow.
    """
    similarity, weight = pairs.similarity, pairs.weight
    too_far = (1 - pos_eps) * ops.mean(similarity, pairs.positive, weight) - similarity
    too_close = similarity - (1 + neg_eps) * ops.mean(similarity, pairs.negative, weight)
    pull = ops.mean(too_far.relu().square(), pairs.positive, weight)
    return pull + ops.mean(too_close.relu().square(), pairs.negative, weight)
