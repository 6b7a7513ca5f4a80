"""Binomial deviance, and its limit of equal weights."""

from torch import Tensor
from torch.nn.functional import softplus

from equimetric.components import loss
from equimetric.ops.masks import has_any
from equimetric.ops.reductions import mean_rows, reduce_rows, row_mean
from equimetric.option_values import Positive
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["binomial", "equal_weights"]


@loss(
    "binomial",
    title="Binomial deviance",
    family="ranking",
    rowwise=True,
    paper="Yi, Lei, Li: Deep metric learning for practical person re-identification (2014)",
    implies={"epsilon": "multi_similarity"},
    search={"alpha": Uniform(1.0, 10.0), "beta": Uniform(10.0, 100.0), "gamma": Uniform(0.3, 0.7)},
)
def binomial(
    pairs: Pairs, *, alpha: Positive = 2.0, beta: Positive = 50.0, gamma: float = 0.5, reduction: str = "mean"
) -> Tensor:
    """Weigh a pair by its own similarity alone.

    L = 1/B Σ_i { 1/|P_i| Σ_{j∈P_i} softplus(α(γ − s_ij)) + 1/|N_i| Σ_{k∈N_i} softplus(β(s_ik − γ)) };
    `reduction='sum'` leaves 1/B out, 'valid' divides by the number of anchors that have pairs, 'none' gives the terms
    of each anchor.
    """
    of_positives, positive, weight = pairs.packed_positives(pairs.similarity)
    pull = row_mean(softplus(alpha * (gamma - of_positives)), positive, weight)
    push = row_mean(softplus(beta * (pairs.similarity - gamma)), pairs.negative, pairs.weight)
    return reduce_rows(pull + push, has_any(pairs.any) if reduction == "valid" else None, reduction)


@loss(
    "equal_weights",
    title="Equal weights",
    family="ranking",
    rowwise=True,
    paper="Anonymous: A unified view of deep metric learning via gradient analysis (2019)",
    implies={"epsilon": "multi_similarity"},
)
def equal_weights(pairs: Pairs) -> Tensor:
    """Every pair of an anchor counts alike; with `epsilon` it is valid-triplet hard mining (VTHM) and nothing else.

    L = 1/B Σ_i { mean_{j∈P_i} (1 − s_ij) + mean_{k∈N_i} s_ik }
    """
    pull = row_mean(1 - pairs.similarity, pairs.positive, pairs.weight)
    push = row_mean(pairs.similarity, pairs.negative, pairs.weight)
    return mean_rows(pull + push)
