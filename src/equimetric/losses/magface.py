"""MagFace: a margin that grows with the length of an embedding, so that length tells quality."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.losses.arcface import add_angle
from equimetric.option_values import NonNegativeFloat, PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "magface",
    title="MagFace",
    family="classification",
    per_query=True,
    paper="Meng, Zhao, Huang, Zhou: MagFace: a universal representation for face recognition and quality (2021)",
    geometry="dot",
    references="proxies",
    search={"least_margin": Uniform(0.0, 0.8), "most_margin": Uniform(0.2, 1.2), "lam": LogUniform(1.0, 100.0)},
)
def magface(
    pairs: Pairs,
    *,
    least_margin: NonNegativeFloat = 0.45,
    most_margin: NonNegativeFloat = 0.8,
    shortest: PositiveFloat = 10.0,
    longest: PositiveFloat = 110.0,
    lam: NonNegativeFloat = 35.0,
    scale: PositiveFloat = 64.0,
) -> Tensor:
    """Classify by angle with a margin that grows with the norm, and reward large norms, so the norm measures quality.

    L = mean_i −log softmax(z_i)_{y_i} + lam · mean_i (a_i / longest² + 1 / a_i), a = ‖x‖ cut to [shortest, longest],
    z_c = scale · cos θ_c, z_y = scale · cos(θ_y + m(a)) where cos θ_y > 0, m(a) in radians rises from `least_margin` at
    the shortest to `most_margin` at the longest. The class weights are of unit length (`normalize_proxies=True`).
    """
    if not shortest < longest:
        raise EquimetricError(f"magface needs shortest < longest, got {shortest} and {longest}")
    cosine, norms = ops.special.cosine_and_norm(pairs, "magface")
    norms = norms.clamp(shortest, longest)
    margin = least_margin + (most_margin - least_margin) / (longest - shortest) * (norms - shortest)

    def add_margin(cosine: Tensor) -> Tensor:
        return torch.where(cosine > 0, add_angle(cosine, margin), cosine)

    logits = scale * ops.special.replace_positives(cosine, pairs, add_margin)
    pull = (norms / longest**2 + 1 / norms)[:, 0]
    return ops.cross_entropy(logits, pairs) + lam * ops.mean(pull)
