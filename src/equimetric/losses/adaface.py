"""AdaFace: a margin that follows the quality of an image, read from the norm of its embedding."""

from math import pi

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import NonNegativeFloat, PositiveFloat, RowReduction, UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

EPS = 1e-3
"""Cosines stay this far from ±1 and angles from 0 and π, where gradients are infinite; norms above it, up to 100."""


@loss(
    "adaface",
    title="AdaFace",
    family="classification",
    per_query=True,
    paper="Kim, Jain, Liu: AdaFace: quality adaptive margin for face recognition (2022)",
    geometry="dot",
    references="proxies",
    search={"m": Uniform(0.0, 1.0), "h": Uniform(0.0, 1.0), "scale": Uniform(0.01, 200.0)},
    exempt={"finite differences": "the quality follows from the length but counts as a constant"},
)
class AdaFace(nn.Module):
    """Classify by angle, with a larger angular margin for small embedding norms and a larger cosine margin for large.

    L = mean_i −log softmax(z_i)_{y_i}, z_c = scale · cos θ_c, z_y = scale · (cos(θ_y − m q) − m − m q), the angle kept
    in (0, π), q = h (‖x‖ − μ)/(σ + 0.001), cut to [−1, 1], a constant. μ and σ are the mean and the deviation of the
    norms: exponential moving averages with momentum `rate`, initialised to 20 and 100, and part of the state. The
    class weights are of unit length (`normalize_proxies=True`), the embeddings are not.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        *,
        m: NonNegativeFloat = 0.4,
        h: NonNegativeFloat = 0.333,
        scale: PositiveFloat = 64.0,
        rate: UnitFraction = 1.0,
        reduction: RowReduction = "mean",
    ) -> None:
        super().__init__()
        self.m, self.h, self.scale, self.rate, self.reduction = m, h, scale, rate, reduction
        self.register_buffer("mean", torch.tensor(20.0))
        self.register_buffer("deviation", torch.tensor(100.0))

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of pairs of raw queries and unit class weights."""
        cosine, norms = ops.special.cosine_and_norm(pairs, "adaface")
        cosine = cosine.clamp(EPS - 1, 1 - EPS)
        quality = self.quality(norms.detach().clamp(EPS, 100.0), pairs.query_weight)

        def add_margin(cosine: Tensor) -> Tensor:
            angle = (cosine.acos() - self.m * quality).clamp(EPS, pi - EPS)
            return angle.cos() - self.m * (1 + quality)

        logits = self.scale * ops.special.replace_positives(cosine, pairs, add_margin)
        return ops.cross_entropy(logits, pairs, reduction=self.reduction)

    @torch.no_grad()
    def quality(self, norms: Tensor, weight: Tensor | None) -> Tensor:
        """(B, 1) q of each norm; in training the batch, by its weights, first updates μ and σ."""
        if self.training:
            counts = torch.ones_like(norms) if weight is None else weight.to(norms)[:, None]
            mean = ops.divide((counts * norms).sum(), counts.sum())
            variance = ops.divide((counts * (norms - mean).square()).sum(), counts.sum() - 1)
            self.mean.lerp_(mean.to(self.mean), self.rate)
            self.deviation.lerp_(variance.sqrt().to(self.deviation), self.rate)
        return (self.h * (norms - self.mean.to(norms)) / (self.deviation.to(norms) + EPS)).clamp(-1, 1)
