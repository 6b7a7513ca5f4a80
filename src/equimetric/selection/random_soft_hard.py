"""Random soft-hard and semi-hard sampling: one triplet per anchor, drawn among those that violate the order."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import selection
from equimetric.option_values import NonNegativeFloat
from equimetric.pairs import Pairs, Triplets
from equimetric.search_space import Uniform


def fallback_mask(mask: Tensor, fallback: Tensor) -> Tensor:
    """The rows of a mask, and those of `fallback` where a row is empty."""
    return torch.where(mask.any(1, keepdim=True), mask, fallback)


@selection(
    "random_soft_hard",
    paper="Roth, Milbich, Sinha, Gupta, Ommer, Cohen: Revisiting training strategies and generalization (2020)",
    exempt={"permutation": "draws at random", "multiplicity": "draws at random"},
)
def random_soft_hard(pairs: Pairs, *, generator: torch.Generator | None = None) -> Triplets:
    """Per anchor a random positive beyond the closest negative and a random negative before the farthest positive.

    The positive has s_ap < max_n s_an, the negative s_an > min_p s_ap; where there is none, any positive or negative.
    Draws from torch's global generator unless one is given.
    """
    similarity = pairs.similarity.detach()
    hard_positive = pairs.positive & (similarity < ops.special.row_max(similarity, pairs.negative))
    hard_negative = pairs.negative & (similarity > ops.special.row_min(similarity, pairs.positive))
    anchor = (ops.has_any(pairs.positive) & ops.has_any(pairs.negative)).nonzero()[:, 0]
    positive = ops.special.draw_columns(
        pairs.multiplicity(fallback_mask(hard_positive, pairs.positive))[anchor], generator
    )
    negative = ops.special.draw_columns(
        pairs.multiplicity(fallback_mask(hard_negative, pairs.negative))[anchor], generator
    )
    return Triplets(pairs, anchor, positive, negative)


@selection(
    "random_semihard",
    paper="Roth, Milbich, Sinha, Gupta, Ommer, Cohen: Revisiting training strategies and generalization (2020)",
    exempt={"permutation": "draws at random", "multiplicity": "draws at random"},
    search={"margin": Uniform(0.0, 0.5)},
)
def random_semihard(
    pairs: Pairs, *, margin: NonNegativeFloat | None = None, generator: torch.Generator | None = None
) -> Triplets:
    """Per anchor a random positive and a random negative that is farther, but by less than the margin.

    −margin < s_an − s_ap < 0, the margin by default 0.05, or 0.2 of squared distances; where there is no such
    negative, any. Draws from torch's global generator unless one is given.
    """
    anchor = (ops.has_any(pairs.positive) & ops.has_any(pairs.negative)).nonzero()[:, 0]
    positive = ops.special.draw_columns(pairs.multiplicity(pairs.positive)[anchor], generator)
    positive_similarity = torch.zeros_like(pairs.similarity[:, :1])
    positive_similarity[anchor] = pairs.similarity.detach()[anchor, positive, None]
    violation = pairs.similarity.detach() - positive_similarity
    lower_bound = -(pairs.default_margin() if margin is None else margin)
    semihard = pairs.negative & (violation > lower_bound) & (violation < 0)
    negative = ops.special.draw_columns(pairs.multiplicity(fallback_mask(semihard, pairs.negative))[anchor], generator)
    return Triplets(pairs, anchor, positive, negative)
