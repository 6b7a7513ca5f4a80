"""One triple per anchor or per positive pair: the hardest, the easiest, the nearest beyond the positive."""

import torch
from torch import Tensor

from equimetric.components import selection
from equimetric.ops.masks import has_any
from equimetric.pairs import Pairs, Triplets

__all__ = [
    "batch_hard",
    "easy_positive_hard_negative",
    "easy_positive_semihard_negative",
    "facenet_semihard",
]

EASY_POSITIVE = "Xuan, Stylianou, Pless: Improved embeddings with easy positive triplet mining (2020)"


def farthest(similarity: Tensor, mask: Tensor) -> Tensor:
    """(Q,) column of the least similar entry in the mask, the lowest index among equals."""
    return similarity.masked_fill(~mask, torch.inf).argmin(1)


def closest(similarity: Tensor, mask: Tensor) -> Tensor:
    """(Q,) column of the most similar entry in the mask, the lowest index among equals."""
    return similarity.masked_fill(~mask, -torch.inf).argmax(1)


def one_per_row(pairs: Pairs, positive: Tensor, negative: Tensor, allowed: Tensor | None = None) -> Triplets:
    """One triple for each anchor that has a positive and an (allowed) negative, however often these are present."""
    allowed = pairs.negative if allowed is None else allowed
    anchor = (has_any(pairs.positive) & has_any(allowed)).nonzero()[:, 0]
    return Triplets(pairs, anchor, positive[anchor], negative[anchor])


@selection("batch_hard", paper="Hermans, Beyer, Leibe: In defense of the triplet loss (2017)")
def batch_hard(pairs: Pairs) -> Triplets:
    """Per anchor the farthest positive and the closest negative."""
    similarity = pairs.similarity.detach()
    return one_per_row(pairs, farthest(similarity, pairs.positive), closest(similarity, pairs.negative))


@selection("easy_positive_hard_negative", paper=EASY_POSITIVE)
def easy_positive_hard_negative(pairs: Pairs) -> Triplets:
    """Per anchor the closest positive and the closest negative."""
    similarity = pairs.similarity.detach()
    return one_per_row(pairs, closest(similarity, pairs.positive), closest(similarity, pairs.negative))


@selection("easy_positive_semihard_negative", paper=EASY_POSITIVE)
def easy_positive_semihard_negative(pairs: Pairs) -> Triplets:
    """Per anchor the closest positive and the closest negative beyond it; anchors without one are left out."""
    similarity = pairs.similarity.detach()
    positive = closest(similarity, pairs.positive)
    beyond = pairs.negative & (similarity < similarity.gather(1, positive[:, None]))
    return one_per_row(pairs, positive, closest(similarity, beyond), beyond)


@selection("facenet_semihard", paper="Schroff, Kalenichenko, Philbin: FaceNet (2015)")
def facenet_semihard(pairs: Pairs) -> Triplets:
    """Per positive pair the closest negative beyond the positive; where none is, the *farthest* negative."""
    similarity = pairs.similarity.detach()
    anchor, positive = (pairs.positive & pairs.negative.any(1, keepdim=True)).nonzero(as_tuple=True)
    rows, is_negative = similarity[anchor], pairs.negative[anchor]
    beyond = is_negative & (rows < similarity[anchor, positive, None])
    negative = torch.where(has_any(beyond), closest(rows, beyond), farthest(rows, is_negative))
    return Triplets(pairs, anchor, positive, negative, None if pairs.weight is None else pairs.weight[anchor, positive])
