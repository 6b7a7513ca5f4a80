"""Multi-similarity loss."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

SEARCH = {"alpha": Uniform(0.01, 100.0), "beta": Uniform(0.01, 100.0), "base": Uniform(0.0, 1.0)}


@loss(
    "multi_similarity",
    title="MS",
    family="ranking",
    separable=True,
    paper="Wang, Han, Huang, Dong, Scott: Multi-similarity loss with general pair weighting (2019)",
    implies={"epsilon": "multi_similarity"},
    search=SEARCH,
    known_as=("MSLoss",),
)
def multi_similarity(
    pairs: Pairs, *, alpha: PositiveFloat = 2.0, beta: PositiveFloat = 50.0, base: float = 0.5
) -> Tensor:
    """Weigh a pair by its own similarity and by its similarity relative to its anchor's other pairs.

    L = 1/B Σ_i { 1/α log[1 + Σ_{j∈P_i} e^{−α(s_ij − base)}] + 1/β log[1 + Σ_{k∈N_i} e^{β(s_ik − base)}] }
    """
    if pairs.known_empty():
        return ops.mean(torch.zeros_like(pairs.similarity[:, 0].detach()))
    positive = ops.positives(pairs)
    pull = ops.log1p_sum_exp(alpha * (base - positive.gather(pairs.similarity)), positive.mask, positive.weight) / alpha
    push = ops.log1p_sum_exp(beta * (pairs.similarity - base), pairs.negative, pairs.weight) / beta
    return ops.mean(pull + push)
