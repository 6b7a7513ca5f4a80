"""Proxy-Anchor: every proxy is compared with the whole batch."""

from typing import Literal

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "proxy_anchor",
    title="Proxy-Anchor",
    family="proxy",
    paper="Kim, Kim, Cho, Kwak: Proxy anchor loss for deep metric learning (2020)",
    references="proxies",
    search={"alpha": LogUniform(4.0, 128.0), "delta": Uniform(0.0, 0.3)},
)
def proxy_anchor(
    pairs: Pairs, *, alpha: PositiveFloat = 32.0, delta: float = 0.1, reduction: Literal["mean", "none"] = "mean"
) -> Tensor:
    """Each proxy is an anchor that weighs the samples of the batch by their relative hardness.

    L = 1/|P⁺| Σ_{p∈P⁺} log[1 + Σ_{x of p} e^{−α(s_xp − δ)}] + 1/|P| Σ_{p∈P} log[1 + Σ_{x not of p} e^{α(s_xp + δ)}],
    P = all proxies, P⁺ = those whose class is in the batch; reduction='none' gives both logarithms per proxy, added.
    """
    similarity, positive, negative, weight = (pairs.similarity.T, pairs.positive.T, pairs.negative.T, pairs.weight)
    # An anchor is a column of the pairs: its weight is the column's multiplicity times that of each sample.
    multiplicity = similarity.new_ones(len(similarity)) if weight is None or not len(weight) else weight.amax(0)
    sample_weight = None if weight is None else weight.T / multiplicity.where(multiplicity > 0, 1.0)[:, None]
    if pairs.query_weight is not None:
        sample_weight = pairs.query_weight.expand_as(similarity) * (1.0 if sample_weight is None else sample_weight)
    pull = ops.log1p_sum_exp(alpha * (delta - similarity), positive, sample_weight)
    push = ops.log1p_sum_exp(alpha * (similarity + delta), negative, sample_weight)
    if reduction == "none":
        return pull + push
    # Means over the proxies, not over the queries.
    present_weight = multiplicity * ops.has_any(positive)
    return ops.divide(pull @ present_weight, present_weight.sum()) + ops.divide(push @ multiplicity, multiplicity.sum())
