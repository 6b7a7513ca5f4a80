"""Ranked list loss: a hypersphere per class, negatives outside weighted by violation."""

import torch
from torch import Tensor

from equimetric.components import loss
from equimetric.errors import unknown_name
from equimetric.ops.masks import to_dtype
from equimetric.ops.reductions import bounded_exp, mean_rows
from equimetric.option_values import NotNegative
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["ranked_list"]


def weighted_violation(violation: Tensor, mask: Tensor, weight: Tensor | None, temperature: float) -> Tensor:
    """(Q,) Σ w v / Σ w over the entries v > 0 of each row, w = e^{T v} held constant; 0 where there are none."""
    with torch.no_grad():
        nontrivial = violation.relu().mul_(to_dtype(mask, violation.dtype))
        share = bounded_exp((nontrivial - nontrivial.amax(1, keepdim=True)).mul_(temperature)).mul_(nontrivial.sign_())
        if weight is not None:
            share *= weight
        share /= share.sum(1, keepdim=True).clamp_min(torch.finfo(share.dtype).tiny)
    # Trivial entries have no share: their violation, though below zero, adds nothing.
    total: Tensor = torch.linalg.vecdot(share, violation)
    return total


@loss(
    "ranked_list",
    title="Ranked list",
    family="ranking",
    rowwise=True,
    paper="Wang, Hua, Kodirov, Hu, Garnier, Robertson: Ranked list loss for deep metric learning (2019)",
    geometry=("euclidean", "cosine"),
    search={"alpha": Uniform(1.0, 1.6), "margin": Uniform(0.2, 0.6), "Tn": Uniform(0.0, 20.0)},
)
def ranked_list(
    pairs: Pairs,
    *,
    alpha: float = 1.2,
    margin: float = 0.4,
    Tn: NotNegative = 10.0,
    Tp: NotNegative = 0.0,
    form: str = "convex",
    lam: float | None = None,
) -> Tensor:
    """Pull positives inside a sphere of diameter α − margin, push negatives beyond α, the closest hardest.

    L = 1/B Σ_i { (1 − λ) L⁺_i + λ L⁻_i } ('convex') or 1/B Σ_i { L⁺_i + λ L⁻_i } ('additive'),
    λ = `lam`, unless given 0.5 in the convex form and 1 in the additive,
    L⁺_i = Σ w⁺ v⁺ / Σ w⁺ over positives with v⁺ = d − (α − margin) > 0, w⁺ = e^{Tp v⁺},
    L⁻_i = Σ w⁻ v⁻ / Σ w⁻ over negatives with v⁻ = α − d > 0, w⁻ = e^{Tn v⁻}; weights w are held constant.
    """
    distance = pairs.distance()
    of_positives, positive, weight = pairs.packed_positives(distance)
    pull = weighted_violation(of_positives - (alpha - margin), positive, weight, Tp)
    push = weighted_violation(alpha - distance, pairs.negative, pairs.weight, Tn)
    if form == "convex":
        lam = 0.5 if lam is None else lam
        return mean_rows((1 - lam) * pull + lam * push)
    if form == "additive":
        return mean_rows(pull + (1.0 if lam is None else lam) * push)
    raise unknown_name("ranked list form", form, ("convex", "additive"))
