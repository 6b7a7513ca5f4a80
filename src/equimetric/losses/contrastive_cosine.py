"""Contrastive loss on cosines."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import TermReduction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "contrastive_cosine",
    title="Contrastive (cosine)",
    family="ranking",
    separable=True,
    paper="Wang, Zhang, Huang, Scott: Cross-batch memory for embedding learning (2020)",
    search={"lam": Uniform(0.0, 0.9)},
    known_as=("CosineEmbeddingLoss",),
)
def contrastive_cosine(
    pairs: Pairs, *, lam: float = 0.5, pos_offset: float = 1.0, reduction: TermReduction = "batch"
) -> Tensor:
    """Pull every positive with constant force, push negatives only above a threshold.

    L = 1/B Σ_i { Σ_{j∈P_i} (pos_offset − s_ij) + Σ_{k∈N_i} [s_ik − λ]₊ }. Other reductions of the queries' terms are
    'mean' or 'valid', 'sum' and 'none'; 'nonzero' is the mean of the positives' terms above zero plus that of the
    negatives', so that positives closer than pos_offset are left alone.
    """
    if reduction == "nonzero":
        similarity = ops.special.similarity(pairs)
        pull, push = ops.Hinge(pos_offset - similarity, pairs.positive), ops.Hinge(similarity - lam, pairs.negative)
        return ops.sum_hinges(pull, push, pairs.weight, reduction)
    pulled = ops.row_sum(pos_offset - pairs.similarity, pairs.positive, pairs.weight)
    pushed = ops.row_sum((pairs.similarity - lam).relu(), pairs.negative, pairs.weight)
    choices = ("batch", "nonzero", "mean", "valid", "sum", "none")
    return ops.special.reduce_rows(pulled + pushed, ops.has_any(pairs.mask), reduction, choices)
