"""One triplet per anchor or per positive pair: the hardest, the easiest, the nearest beyond the positive."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import selection
from equimetric.pairs import Pairs, Triplets

EASY_POSITIVE = "Xuan, Stylianou, Pless: Improved embeddings with easy positive triplet mining (2020)"
CHOSEN_ONCE = {"doubling": "one triplet is chosen among equals, so a doubled reference counts once"}


def one_triplet_per_anchor(pairs: Pairs, positive: Tensor, negative: Tensor, allowed: Tensor | None = None) -> Triplets:
    """One triplet for each anchor that has a positive and an (allowed) negative, whatever their multiplicity."""
    allowed = pairs.negative if allowed is None else allowed
    anchor = (ops.has_any(pairs.positive) & ops.has_any(allowed)).nonzero()[:, 0]
    return Triplets(pairs, anchor, positive[anchor], negative[anchor])


@selection("batch_hard", paper="Hermans, Beyer, Leibe: In defense of the triplet loss (2017)", exempt=CHOSEN_ONCE)
def batch_hard(pairs: Pairs) -> Triplets:
    """Per anchor the farthest positive and the closest negative."""
    similarity = pairs.similarity.detach()
    return one_triplet_per_anchor(
        pairs, ops.special.row_argmin(similarity, pairs.positive), ops.special.row_argmax(similarity, pairs.negative)
    )


@selection(
    "easy_positive_hard_negative",
    paper=EASY_POSITIVE,
    exempt=CHOSEN_ONCE,
    known_as=("BatchEasyHardMiner",),
)
def easy_positive_hard_negative(pairs: Pairs) -> Triplets:
    """Per anchor the closest positive and the closest negative."""
    similarity = pairs.similarity.detach()
    return one_triplet_per_anchor(
        pairs, ops.special.row_argmax(similarity, pairs.positive), ops.special.row_argmax(similarity, pairs.negative)
    )


@selection(
    "easy_positive_semihard_negative",
    paper=EASY_POSITIVE,
    exempt=CHOSEN_ONCE,
    known_as=("BatchEasyHardMiner",),
)
def easy_positive_semihard_negative(pairs: Pairs) -> Triplets:
    """Per anchor the closest positive and the closest negative beyond it; anchors without one are left out."""
    similarity = pairs.similarity.detach()
    positive = ops.special.row_argmax(similarity, pairs.positive)
    beyond = pairs.negative & (similarity < similarity.gather(1, positive[:, None]))
    return one_triplet_per_anchor(pairs, positive, ops.special.row_argmax(similarity, beyond), beyond)


@selection("facenet_semihard", paper="Schroff, Kalenichenko, Philbin: FaceNet (2015)", exempt=CHOSEN_ONCE)
def facenet_semihard(pairs: Pairs) -> Triplets:
    """Per positive pair the closest negative beyond the positive; where none is, the *farthest* negative."""
    similarity = pairs.similarity.detach()
    anchor, positive = (pairs.positive & pairs.negative.any(1, keepdim=True)).nonzero(as_tuple=True)
    rows, is_negative = similarity[anchor], pairs.negative[anchor]
    beyond = is_negative & (rows < similarity[anchor, positive, None])
    negative = torch.where(
        ops.has_any(beyond), ops.special.row_argmax(rows, beyond), ops.special.row_argmin(rows, is_negative)
    )
    return Triplets(pairs, anchor, positive, negative, None if pairs.weight is None else pairs.weight[anchor, positive])
