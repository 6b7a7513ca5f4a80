"""Combined margin: factors and offsets of the angle and of the cosine in one."""

from math import pi
from typing import Literal

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import NonNegativeFloat, PositiveFloat, RowReduction, Smoothing, UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "combined_margin",
    title="Combined margin",
    family="classification",
    separable=True,
    paper="Deng, Guo, Xue, Zafeiriou: ArcFace: additive angular margin loss for deep face recognition (2019)",
    references=("proxies", "batch"),
    search={
        "m1": Uniform(0.5, 2.0),
        "m2": Uniform(0.0, 1.0),
        "m3": Uniform(0.0, 0.5),
        "scale": Uniform(0.01, 200.0),
        "label_smoothing": Uniform(0.0, 0.2),
    },
    exempt={"monotone": "cos(m1 θ + m2) rises again where the angle is beyond π, so the 'plain' rule pushes there"},
    known_as=("CombinedMarginLoss", "MarginSoftmax"),
)
def combined_margin(
    pairs: Pairs,
    *,
    m1: PositiveFloat = 1.0,
    m2: NonNegativeFloat = 0.3,
    m3: NonNegativeFloat = 0.2,
    scale: PositiveFloat = 64.0,
    mode: Literal["plain", "monotone"] = "monotone",
    label_smoothing: UnitFraction = 0.0,
    smoothing: Smoothing = "others",
    reduction: RowReduction = "mean",
) -> Tensor:
    """Classify by cosine with the margins of SphereFace, ArcFace and CosFace at once.

    L = mean_i −log softmax(z_i)_{y_i}, z_c = scale · cos θ_c, z_y = scale · (cos φ − m3), φ = m1 θ_y + m2 in radians.
    Modes: 'plain' for all φ; 'monotone' continues as (−1)^k cos φ − 2k for φ in [kπ, (k + 1)π], which always falls.
    m1=1, m2=0.5, m3=0 is ArcFace, m1=1, m2=0, m3=0.35 is CosFace.
    """

    def add_margin(cosine: Tensor) -> Tensor:
        # At 0 and π the gradient of the angle is infinite.
        edge = 1 - (1e-12 if cosine.dtype == torch.float64 else 1e-7)
        angle = m1 * cosine.clamp(-edge, edge).acos() + m2
        if mode == "plain":
            return angle.cos() - m3
        turns = (angle.detach() / pi).floor()
        return (1 - 2 * (turns % 2)) * angle.cos() - 2 * turns - m3

    logits = scale * ops.special.replace_positives(pairs.similarity, pairs, add_margin)
    return ops.cross_entropy(logits, pairs, label_smoothing, smoothing, reduction)
