"""Contrastive loss on distances."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import HingeReduction, PositiveInt
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "contrastive",
    title="Contrastive",
    family="ranking",
    separable=True,
    paper="Hadsell, Chopra, LeCun: Dimensionality reduction by learning an invariant mapping (2006)",
    geometry=("euclidean", "cosine", "sqeuclidean"),
    search={"pos_margin": Uniform(-0.2, 2.0), "neg_margin": Uniform(-0.2, 2.0)},
    known_as=("OnlineContrastiveLoss", "Siamese"),
)
def contrastive(
    pairs: Pairs,
    *,
    pos_margin: float = 0.0,
    neg_margin: float = 1.0,
    reduction: HingeReduction = "nonzero",
    power: PositiveInt = 1,
) -> Tensor:
    """Pull positives inside one margin, push negatives outside another.

    L = R_{positives} [d − pos_margin]₊^power + R_{negatives} [neg_margin − d]₊^power,
    R = 'nonzero' (mean of the terms above zero), 'mean', 'sum', 'batch' (the sum / number of queries), 'valid' (the
    sum / number of queries that have such pairs), 'anchor' (mean within each query, then over these queries) or 'none'
    (every term), for positives and negatives separately, so that the many negatives cannot drown the positives.
    """
    distance = ops.distance(pairs)
    pull = ops.Hinge(distance - pos_margin, pairs.positive)
    push = ops.Hinge(neg_margin - distance, pairs.negative)
    return ops.sum_hinges(pull, push, pairs.weight, reduction, power=power)
