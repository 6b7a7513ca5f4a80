"""Distance-weighted sampling: negatives from all distances, not only from the many near √2."""

from typing import Annotated

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import selection
from equimetric.errors import EquimetricError
from equimetric.option_values import PositiveFloat, Range
from equimetric.pairs import Pairs, Triplets
from equimetric.search_space import Uniform

Distance = Annotated[float, Range(0.0, 2.0, without_low=True)]
"""A distance of two unit vectors."""


def negative_probabilities(pairs: Pairs, *, cutoff: float = 0.5, upper: float = 1.4) -> Tensor:
    """(Q, R) probability of each negative, each row summing to 1, or to 0 where no negative is allowed.

    On the unit sphere of R^D the distances of random points have the density q(d) ∝ d^{D−2} (1 − d²/4)^{(D−3)/2};
    a negative is drawn with probability ∝ 1/q(max(d, cutoff)), and not at all at d ≥ upper.
    """
    if pairs.geometry is None or pairs.queries is None:
        raise EquimetricError("distance-weighted selection needs pairs that know their geometry and queries")
    dimension = pairs.queries.embeddings.shape[1]
    distance = pairs.geometry.chord(pairs.similarity.detach())
    allowed = pairs.negative & (distance < upper)
    # Masked before the logarithm, so that d → 2 never gives log 0.
    bounded = torch.where(allowed, distance.clamp_min(cutoff), torch.ones_like(distance))
    log_weight = (2 - dimension) * bounded.log() - (dimension - 3) / 2 * (1 - bounded.square() / 4).log()
    if pairs.weight is not None:
        log_weight = log_weight + torch.where(allowed, pairs.weight, torch.ones_like(pairs.weight)).log()
    # softmax subtracts the maximum over the allowed entries of the row: a global maximum underflows whole rows.
    probabilities = log_weight.masked_fill(~allowed, -torch.inf).softmax(1)
    return torch.where(allowed.any(1, keepdim=True), probabilities, torch.zeros_like(probabilities))


@selection(
    "distance_weighted",
    other_names=("dw_probs",),
    paper="Wu, Manmatha, Smola, Krähenbühl: Sampling matters in deep embedding learning (2017)",
    search={"cutoff": Uniform(0.1, 1.0)},
    exempt={
        "permutation": "draws at random",
        "multiplicity": "draws at random",
        "static shapes": "the drawn triplets are listed",
    },
)
def distance_weighted(
    pairs: Pairs, *, cutoff: Distance = 0.5, upper: PositiveFloat = 1.4, generator: torch.Generator | None = None
) -> Triplets:
    """For every positive pair one negative, drawn so that all distances occur equally often.

    Draws from torch's global generator unless one is given; anchors without a negative nearer than `upper` are left
    out.
    """
    probabilities = negative_probabilities(pairs, cutoff=cutoff, upper=upper)
    # As many draws per anchor in a compiled graph as without one, for the same random numbers.
    positives = ops.special.list_positives(pairs, static_shapes=False)
    columns, drawable = positives.columns, probabilities.sum(1) > 0
    anchor, index = (positives.mask & drawable[:, None]).nonzero(as_tuple=True)
    positive, negative = columns[anchor, index], anchor
    if len(anchor):
        drawn = torch.zeros_like(columns)
        drawn[drawable] = torch.multinomial(
            probabilities[drawable], columns.shape[1], replacement=True, generator=generator
        )
        negative = drawn[anchor, index]
    weight = None if pairs.weight is None else pairs.weight[anchor, positive]
    return Triplets(pairs, anchor, positive, negative, weight)
