"""Contrastive loss on the signal-to-noise distance."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.losses.contrastive import contrastive
from equimetric.option_values import HingeReduction, NonNegativeFloat, PositiveInt
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "snr_contrastive",
    title="SNR contrastive",
    family="ranking",
    separable={"reg": 0.0},
    paper="Yuan, Deng, Tang, Tang, Chen: Signal-to-noise ratio: a robust distance metric (2019)",
    geometry="snr",
    search={"pos_margin": Uniform(0.0, 2.0), "neg_margin": Uniform(0.0, 2.0), "reg": Uniform(0.0, 1.0)},
    known_as=("SignalToNoiseRatioContrastiveLoss", "SNR"),
)
def snr_contrastive(
    pairs: Pairs,
    *,
    pos_margin: float = 0.0,
    neg_margin: float = 1.0,
    reg: NonNegativeFloat = 0.0,
    reduction: HingeReduction = "nonzero",
    power: PositiveInt = 1,
) -> Tensor:
    """Contrastive loss where distance is the noise from anchor to other, relative to the anchor's own variance.

    L = R_{positives} [d − pos_margin]₊^power + R_{negatives} [neg_margin − d]₊^power + reg · mean_i |Σ_m x_im|,
    d_ij = var(x_i − x_j) / var(x_i); R as for contrastive. The last term keeps embeddings at zero mean.
    """
    value = contrastive(pairs, pos_margin=pos_margin, neg_margin=neg_margin, reduction=reduction, power=power)
    if reg:
        value = value + reg * ops.mean(ops.require.queries(pairs, "snr_contrastive").embeddings.sum(1).abs())
    return value
