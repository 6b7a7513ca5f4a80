"""Circle loss: every similarity weighted by its distance from its optimum."""

from math import log

from torch import Tensor
from torch.nn.functional import softplus

from equimetric.components import loss
from equimetric.errors import unknown_name
from equimetric.losses.preconditions import check_square_batch
from equimetric.ops.masks import has_any
from equimetric.ops.reductions import log_sum_exp, mean_valid
from equimetric.option_values import Positive
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform

__all__ = ["circle"]


@loss(
    "circle",
    title="Circle",
    family="ranking",
    rowwise={"mode": "anchor"},
    paper="Sun et al.: Circle loss: a unified perspective of pair similarity optimization (2020)",
    search={"m": Uniform(0.1, 0.6), "gamma": LogUniform(16.0, 512.0)},
)
def circle(pairs: Pairs, *, m: float = 0.4, gamma: Positive = 80.0, mode: str = "anchor") -> Tensor:
    """Pull and push harder the farther a similarity is from its optimum.

    L = mean_i softplus( log Σ_{j∈P_i} e^{−γ α⁺_ij (s_ij − 1 + m)} + log Σ_{k∈N_i} e^{γ α⁻_ik (s_ik − m)} ),
    α⁺ = [1 + m − s]₊ and α⁻ = [s + m]₊ held constant; over anchors with positives and negatives. `mode='batch'` has one
    term with both sums over all unordered pairs of the batch.
    """
    if mode not in ("anchor", "batch"):
        raise unknown_name("circle mode", mode, ("anchor", "batch"))
    negative, weight = pairs.negative, pairs.weight
    of_positives, positive, positive_weight = pairs.packed_positives(pairs.similarity)
    pull = gamma * (1 + m - of_positives).relu().detach() * (1 - m - of_positives)
    push = gamma * (pairs.similarity + m).relu().detach() * (pairs.similarity - m)
    twice = 0.0
    if mode == "batch":
        check_square_batch(pairs, "circle")
        pull, push, positive, negative = (part.reshape(1, -1) for part in (pull, push, positive, negative))
        positive_weight, weight = (None if part is None else part.reshape(1, -1) for part in (positive_weight, weight))
        # Each of the two sums meets every unordered pair in both orders.
        twice = 2 * log(2)
    exponent = log_sum_exp(pull, positive, positive_weight) + log_sum_exp(push, negative, weight) - twice
    return mean_valid(softplus(exponent), has_any(positive) & has_any(negative))
