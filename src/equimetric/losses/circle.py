"""Circle loss: every similarity weighted by its distance from its optimum."""

from math import log
from typing import Literal

from torch import Tensor
from torch.nn.functional import softplus

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "circle",
    title="Circle",
    family="ranking",
    separable={"mode": "anchor"},
    paper="Sun et al.: Circle loss: a unified perspective of pair similarity optimization (2020)",
    search={"m": Uniform(0.1, 0.6), "gamma": LogUniform(16.0, 512.0)},
    exempt={"finite differences": "the weights α are held constant in the gradient"},
)
def circle(
    pairs: Pairs, *, m: float = 0.4, gamma: PositiveFloat = 80.0, mode: Literal["anchor", "batch"] = "anchor"
) -> Tensor:
    """Pull and push harder the farther a similarity is from its optimum.

    L = mean_i softplus( log Σ_{j∈P_i} e^{−γ α⁺_ij (s_ij − 1 + m)} + log Σ_{k∈N_i} e^{γ α⁻_ik (s_ik − m)} ),
    α⁺ = [1 + m − s]₊ and α⁻ = [s + m]₊ held constant; over anchors with positives and negatives. `mode='batch'` has one
    term with both sums over all unordered pairs of the batch.
    """
    positive = ops.positives(pairs)
    similarity, positive_similarity = pairs.similarity, positive.gather(pairs.similarity)
    pull = gamma * (1 + m - positive_similarity).relu().detach() * (1 - m - positive_similarity)
    push = gamma * (similarity + m).relu().detach() * (similarity - m)
    pulls, pushes = (pull, positive.mask, positive.weight), (push, pairs.negative, pairs.weight)
    if mode == "batch":
        ops.require.square_batch(pairs, "circle")
        pulls, pushes = as_one_row(*pulls), as_one_row(*pushes)
    # Over the batch, each of the two sums holds every unordered pair in both orders.
    exponent = ops.log_sum_exp(*pulls) + ops.log_sum_exp(*pushes) - (2 * log(2) if mode == "batch" else 0)
    return ops.mean(softplus(exponent), ops.has_any(pulls[1]) & ops.has_any(pushes[1]))


def as_one_row(values: Tensor, mask: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """(1, N) values, mask and weight of all entries."""
    return values.reshape(1, -1), mask.reshape(1, -1), None if weight is None else weight.reshape(1, -1)
