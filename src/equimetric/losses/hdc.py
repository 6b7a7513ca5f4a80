"""HDC: members at growing depths of a network, each trained on harder pairs than the one before."""

from collections.abc import Sequence
from math import floor

import torch
from torch import Tensor

from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.geometry import squared_chord, unit
from equimetric.losses.members import equal_sizes, member_slices
from equimetric.losses.preconditions import batch_embeddings
from equimetric.ops.masks import flatnonzero
from equimetric.ops.products import inner_products
from equimetric.ops.reductions import added, divide
from equimetric.option_values import NotNegative
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

__all__ = ["hdc"]


@loss(
    "hdc",
    title="HDC",
    family="ensemble",
    paper="Yuan, Yang, Zhang: Hard-aware deeply cascaded embedding (2017)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"margin": Uniform(0.5, 2.0), "negative_factor": Uniform(1.0, 20.0)},
)
def hdc(
    pairs: Pairs,
    *,
    ratios: Sequence[float] = (1.0, 0.5, 0.2),
    margin: float = 1.0,
    negative_factor: NotNegative = 10.0,
    cascade: bool = False,
) -> Tensor:
    """A contrastive loss for each member of an ensemble, over the hardest of its pairs.

    L = Σ_m Σ_{K_m} ℓ / |K_m|, ℓ = d² of positives and negative_factor · [margin − d²]₊ of negatives, d the distance of
    the unit vectors of member m. K_m are the hardest ⌊ratios[m] · number⌋ of the positive and, apart, of the negative
    pairs i < j, as far as they have a loss. With `cascade` they are chosen among K_{m−1}, as the paper says; the
    authors' code lets every member choose among all. The embedding is that of the members one after the other, in
    equal parts: heads at three depths of a network for the method as published.
    """
    if not isinstance(ratios, Sequence) or not ratios or not all(0 < ratio <= 1 for ratio in ratios):
        raise EquimetricError(f"ratios of hdc must be shares above 0 and up to 1, one per member, got {ratios}")
    embeddings = batch_embeddings(pairs, "hdc")
    slices = member_slices(embeddings, equal_sizes(embeddings.shape[1], len(ratios), "hdc"), "hdc")
    # A pair counts once, in either order.
    masks = [(mask | mask.T).triu(1) for mask in (pairs.positive, pairs.negative)]
    numbers = [int(mask.sum()) for mask in masks]
    values = []
    for ratio, vectors in zip(ratios, map(unit, slices), strict=True):
        similarity = inner_products(vectors, vectors)
        with torch.no_grad():
            squared = squared_chord(similarity).clamp_min_(0)
            losses = (squared, negative_factor * (margin - squared))
            wanted = [floor(ratio * number + 1e-9) for number in numbers]
            kept = [hardest(*each) for each in zip(losses, masks, wanted, strict=True)]
        # One gather of what either keeps: on the way back it is one matrix, not two.
        hard = torch.split(similarity.reshape(-1)[torch.cat(kept)], [len(places) for places in kept])
        near, far = (squared_chord(cosines).clamp_min(0) for cosines in hard)
        total = near.sum() + negative_factor * (margin - far).sum()
        values.append(divide(total, total.new_tensor(sum(map(len, kept)))))
        if cascade:
            masks = [among(mask, places) for mask, places in zip(masks, kept, strict=True)]
    return added(values)


def hardest(losses: Tensor, mask: Tensor, number: int) -> Tensor:
    """Places of the largest so many losses above zero in a mask."""
    places = flatnonzero(mask & (losses > 0))
    if len(places) <= number:
        return places
    return places[losses.reshape(-1)[places].topk(number).indices]


def among(mask: Tensor, places: Tensor) -> Tensor:
    """The mask of these places."""
    return torch.zeros_like(mask).view(-1).index_fill_(0, places, True).view(mask.shape)
