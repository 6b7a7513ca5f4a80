"""Equal weights: the limit of the binomial deviance in which every pair counts alike."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs


@loss(
    "equal_weights",
    title="Equal weights",
    family="ranking",
    separable=True,
    paper="Anonymous: A unified view of deep metric learning via gradient analysis (2019)",
    implies={"epsilon": "multi_similarity"},
)
def equal_weights(pairs: Pairs) -> Tensor:
    """Weigh all pairs of an anchor equally; with `epsilon` it is valid-triplet hard mining (VTHM) alone.

    L = 1/B Σ_i { mean_{j∈P_i} (1 − s_ij) + mean_{k∈N_i} s_ik }
    """
    pull = ops.row_mean(1 - pairs.similarity, pairs.positive, pairs.weight)
    push = ops.row_mean(pairs.similarity, pairs.negative, pairs.weight)
    return ops.mean(pull + push)
