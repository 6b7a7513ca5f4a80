"""The ρ-regularisation behind R-margin and its like: now and then push a class apart, so that it does not collapse."""

import torch

from equimetric.components import selection
from equimetric.errors import EquimetricError
from equimetric.option_values import PositiveFloat, UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform
from equimetric.selection.distance_weighted import Distance, distance_weighted
from equimetric.selection.own_class import OwnClassTriplets


@selection(
    "spectral_switch",
    paper="Roth, Milbich, Sinha, Gupta, Ommer, Cohen: Revisiting training strategies and generalization (2020)",
    search={"p_switch": Uniform(0.0, 0.5)},
    exempt={
        "permutation": "draws at random",
        "multiplicity": "draws at random",
        "monotone": "the positives of switched anchors are pushed away, so that classes do not collapse",
        "static shapes": "the drawn triplets are listed",
    },
)
def spectral_switch(
    pairs: Pairs,
    *,
    p_switch: UnitFraction = 0.4,
    cutoff: Distance = 0.5,
    upper: PositiveFloat = 1.4,
    generator: torch.Generator | None = None,
) -> OwnClassTriplets:
    """Distance-weighted triplets, but with some probability an anchor's own positives are pushed away.

    With probability `p_switch` per anchor a its triplets are (a, a, j) for each j of its own class: the positive is
    the anchor itself, the negative a sample of the anchor's class. All other anchors have one negative, drawn by
    distance, for each of their positives. The spread within classes keeps the spectrum of the embedding flat.
    The paper's p_switch is 0.4 on CUB, 0.35 on Cars and 0.15 on SOP. Draws from torch's global generator unless one
    is given.
    """
    switched = torch.rand(len(pairs.similarity), 1, device=pairs.similarity.device, generator=generator) < p_switch
    anchor, pushed = (pairs.positive & switched).nonzero(as_tuple=True)
    self_mask = pairs.self_mask()
    if not self_mask[anchor].any(1).all():
        raise EquimetricError(
            "the spectral switch needs every query among its references, as its own positive; use references='batch'"
        )
    pushed_weight = pairs.weight[anchor, pushed] if pairs.weight is not None else None
    unswitched = pairs.replace(positive=pairs.positive & ~switched)
    sampled = distance_weighted(unswitched, cutoff=cutoff, upper=upper, generator=generator)
    return OwnClassTriplets(
        pairs,
        torch.cat([sampled.anchor, anchor]),
        torch.cat([sampled.positive, self_mask.to(torch.uint8).argmax(1)[anchor]]),
        torch.cat([sampled.negative, pushed]),
        None if sampled.weight is None or pushed_weight is None else torch.cat([sampled.weight, pushed_weight]),
    )
