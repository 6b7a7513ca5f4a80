"""Multi-similarity loss, which is also the RAW loss of the unified view."""

import torch
from torch import Tensor

from equimetric.components import loss
from equimetric.ops.reductions import log1p_sum_exp, mean_rows
from equimetric.option_values import Positive
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["multi_similarity", "raw"]

SEARCH = {"alpha": Uniform(0.01, 100.0), "beta": Uniform(0.01, 100.0), "base": Uniform(0.0, 1.0)}


@loss(
    "multi_similarity",
    title="MS",
    family="ranking",
    rowwise=True,
    paper="Wang, Han, Huang, Dong, Scott: Multi-similarity loss with general pair weighting (2019)",
    implies={"epsilon": "multi_similarity"},
    search=SEARCH,
)
def multi_similarity(pairs: Pairs, *, alpha: Positive = 2.0, beta: Positive = 50.0, base: float = 0.5) -> Tensor:
    """Weigh a pair by its own similarity and by how it stands among its anchor's other pairs.

    L = 1/B Σ_i { 1/α log[1 + Σ_{j∈P_i} e^{−α(s_ij − base)}] + 1/β log[1 + Σ_{k∈N_i} e^{β(s_ik − base)}] }
    """
    if pairs.known_empty():
        return mean_rows(torch.zeros_like(pairs.similarity[:, 0].detach()))
    of_positives, positive, weight = pairs.packed_positives(pairs.similarity)
    pull = log1p_sum_exp(alpha * (base - of_positives), positive, weight) / alpha
    push = log1p_sum_exp(beta * (pairs.similarity - base), pairs.negative, pairs.weight) / beta
    return mean_rows(pull + push)


@loss(
    "raw",
    title="RAW",
    family="ranking",
    rowwise=True,
    paper="Anonymous: A unified view of deep metric learning via gradient analysis (2019)",
    implies={"epsilon": "multi_similarity"},
    search=SEARCH,
)
def raw(pairs: Pairs, *, alpha: Positive = 2.0, beta: Positive = 50.0, base: float = 0.5) -> Tensor:
    """Relative and absolute weights: term by term the multi-similarity loss.

    The paper's γ = `base`; its valid-triplet hard mining (VTHM) with margin λ is the miner with `epsilon` = λ.
    """
    return multi_similarity(pairs, alpha=alpha, beta=beta, base=base)
