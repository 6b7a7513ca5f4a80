"""NT-Xent: every positive pair classified against its anchor's negatives."""

from torch import Tensor
from torch.nn.functional import softplus

from equimetric.components import loss
from equimetric.ops.reductions import log_sum_exp, mean
from equimetric.option_values import Positive
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform

__all__ = ["against_negatives", "ntxent"]


def against_negatives(logits: Tensor, pairs: Pairs) -> Tensor:
    """Mean over positive pairs of log(1 + Σ_{n∈N_a} e^{z_an − z_ap}) = softplus(log Σ_n e^{z_an} − z_ap).

    One log-sum-exp per anchor serves all its positives; anchors without negatives are left out.
    """
    negatives = log_sum_exp(logits, pairs.negative, pairs.weight)[:, None]
    compared = pairs.positive & pairs.negative.any(1, keepdim=True)
    return mean(softplus(negatives - logits), compared, pairs.weight)


@loss(
    "ntxent",
    title="NT-Xent",
    family="ranking",
    rowwise=True,
    paper="Sohn: Multi-class N-pair loss (2016); Chen, Kornblith, Norouzi, Hinton: SimCLR (2020)",
    search={"temperature": LogUniform(1e-4, 100.0)},
)
def ntxent(pairs: Pairs, *, temperature: Positive = 0.07) -> Tensor:
    """Normalised, temperature-scaled cross-entropy of each positive pair against the anchor's negatives.

    L = mean_{(a,p)} −log( e^{s_ap/τ} / (e^{s_ap/τ} + Σ_{n∈N_a} e^{s_an/τ}) ), τ = `temperature`; the anchor's other
    positives are not in the denominator.
    """
    return against_negatives(pairs.similarity / temperature, pairs)
