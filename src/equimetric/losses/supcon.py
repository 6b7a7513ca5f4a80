"""Supervised contrastive loss."""

from typing import Literal

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform


@loss(
    "supcon",
    title="SupCon",
    family="ranking",
    separable=True,
    paper="Khosla et al.: Supervised contrastive learning (2020)",
    geometry=("cosine", "euclidean", "sqeuclidean", "dot"),
    search={"temperature": LogUniform(0.01, 0.5)},
    exempt={"monotone": "positives compete in the denominator: one that holds more than 1/|P| of the sum is let go"},
    known_as=("SupervisedContrastiveLoss",),
)
def supcon(pairs: Pairs, *, temperature: PositiveFloat = 0.1, reduction: Literal["valid", "batch"] = "valid") -> Tensor:
    """Classify every positive of an anchor against all its pairs, other positives included.

    L = mean_i −1/|P_i| Σ_{p∈P_i} log( e^{s_ip/τ} / Σ_{j≠i} e^{s_ij/τ} ), τ = `temperature`, over anchors with positives
    and negatives; `reduction='batch'` divides by the number of all anchors instead.
    """
    logits = pairs.similarity / temperature
    values = ops.log_sum_exp(logits, pairs.mask, pairs.weight) - ops.row_mean(logits, pairs.positive, pairs.weight)
    valid = ops.has_any(pairs.positive) & ops.has_any(pairs.negative)
    return ops.special.reduce_rows(values, valid, reduction, choices=("valid", "batch"))
