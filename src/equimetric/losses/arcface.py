"""ArcFace: classification with a margin on the angle."""

from math import cos, pi, sin
from typing import Annotated, Literal

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat, Range, RowReduction, Smoothing, UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


def add_angle(cosine: Tensor, angle: float | Tensor) -> Tensor:
    """cos(θ + angle) from cos θ, with a bounded gradient at θ = 0 and π, where that of arccos is infinite."""
    turn = (angle.cos(), angle.sin()) if isinstance(angle, Tensor) else (cos(angle), sin(angle))
    tiny = 1e-12 if cosine.dtype == torch.float64 else 1e-7
    sine = (1 - cosine.square()).clamp_min(tiny).sqrt()
    return cosine * turn[0] - sine * turn[1]


@loss(
    "arcface",
    title="ArcFace",
    family="classification",
    separable=True,
    paper="Deng, Guo, Xue, Zafeiriou: ArcFace: additive angular margin loss for deep face recognition (2019)",
    references=("proxies", "batch"),
    search={"margin_rad": Uniform(0.0, 1.5708), "scale": Uniform(0.01, 200.0), "label_smoothing": Uniform(0.0, 0.2)},
    exempt={"monotone": "cos(θ + m) rises again beyond θ = π − m, so the 'plain' rule pushes positives there away"},
    known_as=("ArcMarginProduct", "AAMSoftmax", "AdditiveAngularMarginLoss"),
)
def arcface(
    pairs: Pairs,
    *,
    margin_rad: Annotated[float, Range(0.0, pi)] = 0.5,
    scale: PositiveFloat = 64.0,
    mode: Literal["plain", "monotone", "easy"] = "monotone",
    label_smoothing: UnitFraction = 0.0,
    smoothing: Smoothing = "others",
    reduction: RowReduction = "mean",
) -> Tensor:
    """Classify by cosine after widening the angle to the right class by a margin.

    L = mean_i −log softmax(z_i)_{y_i}, z_c = scale · cos θ_c, z_{y} = scale · cos(θ_y + m), m in radians. Modes:
    'plain' for all θ; 'monotone' falls on as cos θ − m sin m beyond θ = π − m; 'easy' has no margin where cos θ ≤ 0.
    """

    def add_margin(cosine: Tensor) -> Tensor:
        widened = add_angle(cosine, margin_rad)
        if mode == "monotone":
            return torch.where(cosine >= -cos(margin_rad), widened, cosine - margin_rad * sin(margin_rad))
        return torch.where(cosine > 0, widened, cosine) if mode == "easy" else widened

    logits = scale * ops.special.replace_positives(pairs.similarity, pairs, add_margin)
    return ops.cross_entropy(logits, pairs, label_smoothing, smoothing, reduction)
