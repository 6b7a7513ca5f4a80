"""Supervised contrastive loss."""

from torch import Tensor

from equimetric.components import loss
from equimetric.ops.masks import has_any
from equimetric.ops.reductions import log_sum_exp, mean_anchors, row_mean
from equimetric.option_values import Positive
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform

__all__ = ["supcon"]


@loss(
    "supcon",
    title="SupCon",
    family="ranking",
    rowwise=True,
    paper="Khosla et al.: Supervised contrastive learning (2020)",
    search={"temperature": LogUniform(0.01, 0.5)},
    not_monotone="positives compete in the denominator: one that holds more than 1/|P| of the sum is let go",
)
def supcon(pairs: Pairs, *, temperature: Positive = 0.1, denominator: str = "valid") -> Tensor:
    """Every positive of an anchor classified against all its pairs, other positives included.

    L = mean_i −1/|P_i| Σ_{p∈P_i} log( e^{s_ip/τ} / Σ_{j≠i} e^{s_ij/τ} ), τ = `temperature`, over anchors with positives
    and negatives; `denominator='batch'` divides by the number of all anchors instead.
    """
    logits = pairs.similarity / temperature
    everyone = log_sum_exp(logits, pairs.any, pairs.weight)
    values = everyone - row_mean(logits, pairs.positive, pairs.weight)
    return mean_anchors(values, has_any(pairs.positive) & has_any(pairs.negative), denominator)
