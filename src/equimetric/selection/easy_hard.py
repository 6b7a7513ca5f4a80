"""Easy, semi-hard or hard positives and negatives, one or all per anchor, within ranges of distance."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import selection
from equimetric.errors import EquimetricError, unknown_name
from equimetric.pairs import Pairs, Triplets
from equimetric.selection.extremes import CHOSEN_ONCE, EASY_POSITIVE

Strategy: TypeAlias = Literal["easy", "semihard", "hard", "all"]
STRATEGIES = get_args(Strategy)


@selection("easy_hard", paper=EASY_POSITIVE, exempt=CHOSEN_ONCE)
def easy_hard(
    pairs: Pairs,
    *,
    pos_strategy: Strategy = "easy",
    neg_strategy: Strategy = "semihard",
    allowed_pos_range: Sequence[float] | None = None,
    allowed_neg_range: Sequence[float] | None = None,
) -> Pairs | Triplets:
    """Per anchor the easiest or the hardest positive and negative, or all of them, among those at allowed distances.

    'easy' is the closest positive or the farthest negative, 'hard' the farthest positive or the closest negative;
    'semihard' is the hardest that still leaves the positive closer than the negative, given the other one. Ranges
    (low, high) of distances, bounds included, apply before. Anchors that lack either are left out; with 'all' every
    pair of that kind counts, and the anchors of the other kind by themselves.
    """
    check_strategies(pos_strategy, neg_strategy)
    positives = pairs.positive & distance_range_mask(pairs, allowed_pos_range, "allowed_pos_range")
    negatives = pairs.negative & distance_range_mask(pairs, allowed_neg_range, "allowed_neg_range")
    similarity = pairs.similarity.detach()
    closest_positive, closest_negative = pos_strategy == "easy", neg_strategy != "easy"
    if pos_strategy == "semihard":
        negative = extreme_column(similarity, negatives, closest=closest_negative)
        positives = positives & (similarity > similarity.gather(1, negative))
    if neg_strategy == "semihard":
        positive = extreme_column(similarity, positives, closest=closest_positive)
        negatives = negatives & (similarity < similarity.gather(1, positive))
    positive = extreme_column(similarity, positives, closest=closest_positive)
    negative = extreme_column(similarity, negatives, closest=closest_negative)
    if "all" not in (pos_strategy, neg_strategy):
        anchor = (ops.has_any(positives) & ops.has_any(negatives)).nonzero()[:, 0]
        return Triplets(pairs, anchor, positive[anchor, 0], negative[anchor, 0])
    single = torch.zeros_like(positives)
    if pos_strategy != "all":
        positives = single = positives & single.scatter(1, positive, True)
    if neg_strategy != "all":
        negatives = single = negatives & single.scatter(1, negative, True)
    # One is chosen among equals, whatever their multiplicity.
    weight = None if pairs.weight is None else pairs.weight.masked_fill(single, 1.0)
    return pairs.replace(positive=positives, negative=negatives, weight=weight)


def check_strategies(pos_strategy: str, neg_strategy: str) -> None:
    """Raise an error for an unknown name, and for 'semihard' without one single sample to compare with."""
    both = (pos_strategy, neg_strategy)
    for name in both:
        if name not in STRATEGIES:
            raise unknown_name("strategy", name, STRATEGIES)
    if "semihard" in both and not {"easy", "hard"} & set(both):
        raise EquimetricError(
            f"'semihard' compares with the one sample that the other strategy chooses, but the strategies are {both}; "
            "choose 'easy' or 'hard' for one of them"
        )


def distance_range_mask(pairs: Pairs, allowed: Sequence[float] | None, name: str) -> Tensor:
    """(Q, R) bool: distances in a range, or all of them."""
    if allowed is None:
        return torch.ones_like(pairs.positive)
    try:
        low, high = map(float, allowed)
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if not low <= high:
        raise EquimetricError(f"{name} is two ascending distances such as (0.2, 0.9), got {allowed!r}")
    distance = pairs.distance().detach()
    return (distance >= low) & (distance <= high)


def extreme_column(similarity: Tensor, mask: Tensor, *, closest: bool) -> Tensor:
    """(Q, 1) column of the closest or farthest entry of a mask; any column for an empty row."""
    choice = ops.special.row_argmax if closest else ops.special.row_argmin
    return choice(similarity, mask)[:, None]
