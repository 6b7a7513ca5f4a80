"""Decoupled contrastive loss: NT-Xent without the positive in the denominator."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform


@loss(
    "dcl",
    title="DCL",
    family="ranking",
    separable=True,
    paper="Yeh, Hong, Hsu, Liu, Chen, LeCun: Decoupled contrastive learning (2022)",
    geometry=("cosine", "euclidean", "sqeuclidean", "dot"),
    search={"temperature": LogUniform(0.01, 1.0)},
    known_as=("DCLLoss", "DecoupledContrastiveLoss"),
)
def dcl(pairs: Pairs, *, temperature: PositiveFloat = 0.1) -> Tensor:
    """Pull positives and push negatives apart from one another: a close positive does not calm its negatives.

    L = mean_{(a,p)} −s_ap/τ + log Σ_{n∈N_a} e^{s_an/τ}, τ = `temperature`, over anchors that have negatives.
    """
    logits = pairs.similarity / temperature
    negatives = ops.log_sum_exp(logits, pairs.negative, pairs.weight)[:, None]
    compared = pairs.positive & pairs.negative.any(1, keepdim=True)
    return ops.mean(negatives - logits, compared, pairs.weight)
