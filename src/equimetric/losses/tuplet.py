"""Tuplet margin loss."""

from math import cos, radians, sin

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import HalfTurn, PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "tuplet_margin",
    title="Tuplet margin",
    family="ranking",
    separable=True,
    paper="Yu, Tao: Deep metric learning with tuplet margin loss (2019)",
    search={"scale": Uniform(16.0, 128.0), "margin_deg": Uniform(0.0, 15.0)},
    exempt={"monotone": "cos(θ − β) is largest at θ = β, so positives closer than the slack move back to it"},
)
def tuplet_margin(pairs: Pairs, *, scale: PositiveFloat = 64.0, margin_deg: HalfTurn = 5.73) -> Tensor:
    """Compare every positive pair with all the anchor's negatives, with slack on the positive's angle.

    L = mean_{(a,p)} log(1 + Σ_{n∈N_a} e^{scale (cos θ_an − cos(θ_ap − β))}), β = `margin_deg` in degrees: the slack
    keeps the hardest positives from dominating the sum.
    """
    cosine, slack = pairs.similarity, radians(margin_deg)
    # cos(θ − β) without arccos, whose gradient is infinite where a positive pair coincides.
    relaxed = cosine * cos(slack) + ops.special.safe_sqrt(1 - cosine.square()) * sin(slack)
    return ops.special.pair_cross_entropy(scale * torch.where(pairs.positive, relaxed, cosine), pairs)
