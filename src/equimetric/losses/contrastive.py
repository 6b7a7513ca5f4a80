"""Contrastive loss on distances, and its form on cosines."""

from torch import Tensor

from equimetric.components import loss
from equimetric.ops.hinges import Hinge, added_hinges
from equimetric.ops.reductions import mean_rows, row_sum
from equimetric.option_values import Count
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["contrastive", "contrastive_cosine"]


@loss(
    "contrastive",
    title="Contrastive",
    family="ranking",
    rowwise=True,
    paper="Hadsell, Chopra, LeCun: Dimensionality reduction by learning an invariant mapping (2006)",
    geometry=("euclidean", "cosine", "sqeuclidean"),
    search={"pos_margin": Uniform(-0.2, 2.0), "neg_margin": Uniform(-0.2, 2.0)},
)
def contrastive(
    pairs: Pairs, *, pos_margin: float = 0.0, neg_margin: float = 1.0, reduction: str = "nonzero", power: Count = 1
) -> Tensor:
    """Pull positives inside one margin, push negatives outside another.

    L = R_{positives} [d − pos_margin]₊^power + R_{negatives} [neg_margin − d]₊^power,
    R = 'nonzero' (mean of the terms above zero), 'mean', 'sum', 'batch' (the sum / number of queries), 'valid' (the
    sum / number of queries that have such pairs), 'anchor' (mean within each query, then over these queries) or 'none'
    (every term), for positives and negatives apart, so that the many negatives cannot drown the positives.
    """
    values, negated = pairs.signed_distance()
    near, far = (-pos_margin, -neg_margin) if negated else (pos_margin, neg_margin)
    # [d − m]₊ is a hinge of −d below −m.
    pull, push = Hinge(pairs.positive, near, below=negated), Hinge(pairs.negative, far, below=not negated)
    return added_hinges(values, pull, push, pairs.weight, reduction, power=power)


@loss(
    "contrastive_cosine",
    title="Contrastive (cosine)",
    family="ranking",
    rowwise=True,
    paper="Wang, Zhang, Huang, Scott: Cross-batch memory for embedding learning (2020)",
    search={"lam": Uniform(0.0, 0.9)},
)
def contrastive_cosine(pairs: Pairs, *, lam: float = 0.5, pos_offset: float = 1.0) -> Tensor:
    """Pull every positive with constant force, push negatives only above a threshold.

    L = 1/B Σ_i { Σ_{j∈P_i} (pos_offset − s_ij) + Σ_{k∈N_i} [s_ik − λ]₊ }
    """
    pull = row_sum(pos_offset - pairs.similarity, pairs.positive, pairs.weight)
    push = row_sum((pairs.similarity - lam).relu(), pairs.negative, pairs.weight)
    return mean_rows(pull + push)
