"""Weight against similarity: how hard a loss pulls a positive and pushes a negative."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.explain.weights import FROM_COSINE, require_similarities, signed_weights
from equimetric.geometry import HyperbolicGeometry
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.pairs import Pairs, Queries

__all__ = ["WeightCurves", "weight_curves"]

DIM = 64
"""Of the embeddings, for losses that read it."""

ANCHORS = 400
"""Anchors alike, whose mean weight is drawn where a method draws its pairs at random."""


@dataclass(frozen=True, eq=False)
class WeightCurves:
    """The weight of one moving pair, as a positive and as a negative, at each similarity of a grid.

    `geometry` is what the objective measures where the cosine moves; of a sum, what its parts measure.
    """

    name: str
    similarity: Tensor
    positive: Tensor
    negative: Tensor
    geometry: str = ""


def weight_curves(
    objective: Objective | ObjectiveSum,
    *,
    same_side: Sequence[float] = (),
    other_side: Sequence[float] = (0.5,),
    points: int = 401,
) -> WeightCurves:
    """The weight of one pair of an anchor as its cosine moves from −1 to 1.

    The anchor has further, fixed pairs: of the moving pair's kind at the cosines `same_side`, of the other kind at
    `other_side`. Losses that weigh each pair alone ignore both. Where pairs are drawn at random, e.g. by distance, the
    weight is a mean over many draws, the same ones in every call; torch's global generator stays as it is.
    """
    for _, part in objective.parts():
        require_similarities(part)
    # Without the ends: a distance has no gradient where two points coincide.
    grid = torch.linspace(-1, 1, points, dtype=torch.float64)[1:-1]

    def weights(moving_is_positive: bool) -> Tensor:
        values = []
        for cosine in grid.tolist():
            cosines = torch.tensor([[cosine, *same_side, *other_side]], dtype=torch.float64)
            same_kind = torch.tensor([[True] * (1 + len(same_side)) + [False] * len(other_side)])
            total = 0.0
            for weight, part in objective.parts():
                positive = same_kind if moving_is_positive else ~same_kind
                total += weight * moving_weight(part.double(), cosines, positive)
            values.append(total)
        return torch.tensor(values, dtype=torch.float64)

    geometry = " and ".join(dict.fromkeys(part.geometry.name for _, part in objective.parts()))
    try:
        return WeightCurves(objective.name, grid, weights(True), weights(False), geometry)
    except EquimetricError as error:
        raise EquimetricError(
            f"{objective.name!r} has no curve of one moving pair: it reads a batch as a whole; "
            "equimetric.pair_weights gives the weights in a batch"
        ) from error


def moving_weight(objective: Objective, cosines: Tensor, positive: Tensor) -> float:
    """The weight of the first pair of an anchor; where pairs are drawn at random, its mean over many anchors alike.

    Draws are the same ones at every cosine, so that neighbouring weights differ by the cosine and not by luck.
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed other devices, too.
        generator = torch.default_generator.manual_seed(0)
        before = generator.get_state()
        weights = signed_weights(objective, anchors_alike(objective, cosines, positive, 1))
        if not torch.equal(before, generator.get_state()):
            weights = signed_weights(objective, anchors_alike(objective, cosines, positive, ANCHORS))
    return float(weights[:, 0].mean())


def anchors_alike(objective: Objective, cosines: Tensor, positive: Tensor, number: int) -> Pairs:
    """Queries that have references at the same cosines, in the objective's own geometry."""
    if isinstance(objective.geometry, HyperbolicGeometry):
        circle = torch.cat([cosines, (1 - cosines.square()).clamp_min(0).sqrt()]).T
        similarity = objective.geometry.measure(torch.eye(1, 2, dtype=cosines.dtype), circle)
    else:
        # For centred vectors of equal length the noise-to-signal ratio is the squared distance of their unit vectors.
        name = "sqeuclidean" if objective.geometry.name == "snr" else objective.geometry.name
        similarity = FROM_COSINE.get(name, FROM_COSINE["cosine"])(cosines)
    first = torch.zeros(number, dtype=torch.int64)
    # All vectors have length 1, also the one that represents a class.
    anchor = torch.eye(1, DIM, dtype=cosines.dtype).repeat(number, 1)
    queries = Queries(anchor, labels=first, index=first, target_length=1.0)
    positive = positive.repeat(number, 1)
    return Pairs(similarity.repeat(number, 1), positive, ~positive, geometry=objective.geometry, queries=queries)
