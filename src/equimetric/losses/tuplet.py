"""Tuplet margin loss, and the intra-pair variance term that goes with it."""

from math import cos, radians, sin

import torch
from torch import Tensor

from equimetric.components import loss
from equimetric.geometry import safe_sqrt
from equimetric.losses.ntxent import against_negatives
from equimetric.ops.reductions import mean
from equimetric.option_values import HalfTurn, Positive
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["intra_pair_variance", "tuplet_margin"]

PAPER = "Yu, Tao: Deep metric learning with tuplet margin loss (2019)"


@loss(
    "tuplet_margin",
    title="Tuplet margin",
    family="ranking",
    rowwise=True,
    paper=PAPER,
    search={"scale": Uniform(16.0, 128.0), "margin_deg": Uniform(0.0, 15.0)},
    not_monotone="cos(θ − β) is largest at θ = β, so positives at a smaller angle than the slack are let go back to it",
)
def tuplet_margin(pairs: Pairs, *, scale: Positive = 64.0, margin_deg: HalfTurn = 5.73) -> Tensor:
    """Every positive pair against all the anchor's negatives, with slack on the positive's angle.

    L = mean_{(a,p)} log(1 + Σ_{n∈N_a} e^{scale (cos θ_an − cos(θ_ap − β))}), β = `margin_deg` in degrees: the slack
    keeps the hardest positives from ruling the sum.
    """
    cosine, slack = pairs.similarity, radians(margin_deg)
    # cos(θ − β) without arccos, whose gradient is infinite where a positive pair coincides.
    slackened = cosine * cos(slack) + safe_sqrt(1 - cosine.square()) * sin(slack)
    return against_negatives(scale * torch.where(pairs.positive, slackened, cosine), pairs)


@loss(
    "intra_pair_variance",
    title="Intra-pair variance",
    family="regulariser",
    paper=PAPER,
    not_monotone="a closer easy positive raises the mean that all positives are held to; negatives likewise",
)
def intra_pair_variance(pairs: Pairs, *, pos_eps: float = 0.01, neg_eps: float = 0.01) -> Tensor:
    """Hold positives near their mean similarity from below, negatives from above; add 0.5 of it to tuplet margin.

    L = mean_{positives} [(1 − ε⁺) S̄⁺ − s]₊² + mean_{negatives} [s − (1 + ε⁻) S̄⁻]₊², S̄ the means over the batch,
    through which gradients flow.
    """
    similarity = pairs.similarity
    positive_mean = mean(similarity, pairs.positive, pairs.weight)
    negative_mean = mean(similarity, pairs.negative, pairs.weight)
    below = ((1 - pos_eps) * positive_mean - similarity).relu().square()
    above = (similarity - (1 + neg_eps) * negative_mean).relu().square()
    return mean(below, pairs.positive, pairs.weight) + mean(above, pairs.negative, pairs.weight)
