"""Binomial deviance."""

from torch import Tensor
from torch.nn.functional import softplus

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat, RowReduction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "binomial",
    title="Binomial deviance",
    family="ranking",
    separable=True,
    paper="Yi, Lei, Li: Deep metric learning for practical person re-identification (2014)",
    implies={"epsilon": "multi_similarity"},
    search={"alpha": Uniform(1.0, 10.0), "beta": Uniform(10.0, 100.0), "gamma": Uniform(0.3, 0.7)},
    known_as=("BinomialDevianceLoss",),
)
def binomial(
    pairs: Pairs,
    *,
    alpha: PositiveFloat = 2.0,
    beta: PositiveFloat = 50.0,
    gamma: float = 0.5,
    reduction: RowReduction = "mean",
) -> Tensor:
    """Weigh a pair by its own similarity alone.

    L = 1/B Σ_i { 1/|P_i| Σ_{j∈P_i} softplus(α(γ − s_ij)) + 1/|N_i| Σ_{k∈N_i} softplus(β(s_ik − γ)) };
    `reduction='sum'` leaves 1/B out, 'valid' divides by the number of anchors that have pairs, 'none' gives the terms
    of each anchor.
    """
    positive = ops.positives(pairs)
    pull = ops.row_mean(softplus(alpha * (gamma - positive.gather(pairs.similarity))), positive.mask, positive.weight)
    push = ops.row_mean(softplus(beta * (pairs.similarity - gamma)), pairs.negative, pairs.weight)
    return ops.special.reduce_rows(pull + push, ops.has_any(pairs.mask) if reduction == "valid" else None, reduction)
