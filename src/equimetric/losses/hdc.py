"""HDC: members at growing depths of a network, each trained on harder pairs than the one before."""

from collections.abc import Sequence
from math import floor

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.losses.members import EXEMPT, equal_sizes, member_slices
from equimetric.option_values import NonNegativeFloat
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform

RATIOS = (1.0, 0.5, 0.2)
"""The published shares of hard pairs, one for each member."""


@loss(
    "hdc",
    title="HDC",
    family="ensemble",
    paper="Yuan, Yang, Zhang: Hard-aware deeply cascaded embedding (2017)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"margin": Uniform(0.5, 2.0), "negative_factor": Uniform(1.0, 20.0)},
    exempt={
        **EXEMPT,
        "static shapes": "the hardest pairs are listed",
    },
)
def hdc(
    pairs: Pairs,
    *,
    ratios: Sequence[float] = RATIOS,
    margin: float = 1.0,
    negative_factor: NonNegativeFloat = 10.0,
    cascade: bool = False,
) -> Tensor:
    """A contrastive loss for each member of an ensemble, over the hardest of its pairs.

    L = Σ_m Σ_{K_m} ℓ / |K_m|, ℓ = d² of positives and negative_factor · [margin − d²]₊ of negatives, d the distance of
    the unit vectors of member m. K_m are the hardest ⌊ratios[m] · number⌋ of the positive and, separately, of the
    negative pairs i < j, as far as they have a loss. With `cascade` they are chosen among K_{m−1}, as the paper says;
    the authors' code lets every member choose among all. The embedding is that of the members one after the other, in
    equal parts: heads at three depths of a network for the method as published. A pair counts as often as its two
    samples do, the last of K_m as far as the number allows; a number of pairs that is not whole is not rounded.
    """
    if not isinstance(ratios, Sequence) or not ratios or not all(0 < ratio <= 1 for ratio in ratios):
        raise EquimetricError(f"ratios of hdc must be shares above 0 and up to 1, one per member, got {ratios}")
    embeddings = ops.require.batch_embeddings(pairs, "hdc")
    members = member_slices(embeddings, equal_sizes(embeddings.shape[1], len(ratios), "hdc"), "hdc")
    # A pair counts once, in either order.
    masks = [(mask | mask.T).triu(1) for mask in (pairs.positive, pairs.negative)]
    pair_counts = None if pairs.weight is None else [pairs.apply_query_weight().multiplicity(mask) for mask in masks]
    num_pairs = [float(entries.sum()) for entries in (pair_counts or masks)]
    values = []
    for ratio, vectors in zip(ratios, map(ops.unit, members), strict=True):
        similarity = ops.special.inner_products(vectors, vectors)
        with torch.no_grad():
            squared = ops.special.squared_chord(similarity).clamp_min_(0)
            losses = (squared, negative_factor * (margin - squared))
            num_hard = [floor(ratio * n + 1e-9) if n.is_integer() else ratio * n for n in num_pairs]
            hardest = [
                ops.special.hardest_entries(*arguments)
                for arguments in zip(losses, pair_counts or masks, num_hard, strict=True)
            ]
        # One gather of both, whose backward is one matrix, not two.
        indices, counts = zip(*hardest, strict=True)
        hard = torch.split(similarity.reshape(-1)[torch.cat(indices)], [len(index) for index in indices])
        near, far = (ops.special.squared_chord(cosines).clamp_min(0) for cosines in hard)
        total = torch.dot(counts[0], near) + negative_factor * torch.dot(counts[1], margin - far)
        values.append(ops.divide(total, torch.cat(counts).sum()))
        if cascade:
            pair_counts = [torch.zeros_like(similarity).put_(*entries) for entries in hardest]
    return torch.stack(values).sum()
