"""FastAP: average precision from soft histograms of distances."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveInt
from equimetric.pairs import Pairs
from equimetric.search_space import Integer


@loss(
    "fastap",
    title="FastAP",
    family="ap-surrogate",
    separable=True,
    paper="Cakir, He, Xia, Kulis, Sclaroff: Deep metric learning to rank (2019)",
    search={"num_bins": Integer(2, 32)},
    exempt={
        "monotone": "moving a positive closer, into a node that holds mostly negatives, can lower the soft precision"
    },
)
def fastap(pairs: Pairs, *, num_bins: PositiveInt = 10) -> Tensor:
    """Maximize the average precision of each anchor's ranking, smoothed by a soft histogram of its squared distances.

    h^±_l = Σ_{P_i or N_i} [1 − |d² − c_l|/Δ]₊ at the nodes c_l = lΔ, Δ = 4/num_bins, H^± their cumulative sums;
    L = 1 − mean_i FastAP_i = mean_i (1/|P_i|) Σ_l h⁺_l H⁻_l / (H⁺_l + H⁻_l), over anchors with positives.
    """
    squared_distance = 2 - 2 * pairs.similarity
    positive, negative = ops.special.soft_histograms(pairs, squared_distance * (num_bins / 4), num_bins + 1)
    wrong, right = negative.cumsum(1), positive.cumsum(1)
    missed = (positive * ops.divide(wrong, wrong + right)).sum(1)
    return ops.mean(ops.divide(missed, positive.sum(1).detach()), ops.has_any(pairs.positive))
