"""Ranked list loss: a hypersphere per class, negatives outside weighted by violation."""

from typing import Literal

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import NonNegativeFloat
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "ranked_list",
    title="Ranked list",
    family="ranking",
    separable=True,
    paper="Wang, Hua, Kodirov, Hu, Garnier, Robertson: Ranked list loss for deep metric learning (2019)",
    geometry=("euclidean", "cosine"),
    search={"alpha": Uniform(1.0, 1.6), "margin": Uniform(0.2, 0.6), "Tn": Uniform(0.0, 20.0)},
    exempt={"finite differences": "the weights w are held constant in the gradient"},
    known_as=("RLL",),
)
def ranked_list(
    pairs: Pairs,
    *,
    alpha: float = 1.2,
    margin: float = 0.4,
    Tn: NonNegativeFloat = 10.0,
    Tp: NonNegativeFloat = 0.0,
    form: Literal["convex", "additive"] = "convex",
    lam: float | None = None,
) -> Tensor:
    """Pull positives inside a sphere of diameter α − margin, push negatives beyond α, the closest hardest.

    L = 1/B Σ_i { (1 − λ) L⁺_i + λ L⁻_i } ('convex') or 1/B Σ_i { L⁺_i + λ L⁻_i } ('additive'),
    λ = `lam`, unless given 0.5 in the convex form and 1 in the additive,
    L⁺_i = Σ w⁺ v⁺ / Σ w⁺ over positives with v⁺ = d − (α − margin) > 0, w⁺ = e^{Tp v⁺},
    L⁻_i = Σ w⁻ v⁻ / Σ w⁻ over negatives with v⁻ = α − d > 0, w⁻ = e^{Tn v⁻}; weights w are held constant.
    """
    distance, positive = pairs.distance(), ops.positives(pairs)
    pull = ops.special.row_violation(positive.gather(distance) - (alpha - margin), positive.mask, positive.weight, Tp)
    push = ops.special.row_violation(alpha - distance, pairs.negative, pairs.weight, Tn)
    if form == "convex":
        lam = 0.5 if lam is None else lam
        return ops.mean((1 - lam) * pull + lam * push)
    return ops.mean(pull + (1.0 if lam is None else lam) * push)
