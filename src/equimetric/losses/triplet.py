"""Triplet loss over all triples, a band of them, or a list."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.components import loss
from equimetric.errors import unknown_name
from equimetric.ops.masks import count_rows
from equimetric.ops.products import plain_arithmetic
from equimetric.ops.reductions import REDUCTIONS, added, masked_sum, ratio, reduce, with_gradient
from equimetric.pairs import Pairs, TripletBand, Triplets, round_ties
from equimetric.search_space import Uniform

__all__ = ["triplet"]

FEW_POSITIVES = 16
"""Up to so many positives per anchor, one pass for each is faster than sorting."""


@loss(
    "triplet",
    title="Triplet",
    family="ranking",
    rowwise=True,
    paper="Schroff, Kalenichenko, Philbin: FaceNet (2015); Hermans, Beyer, Leibe: In defense of triplet loss (2017)",
    geometry=("euclidean", "sqeuclidean", "cosine", "dot"),
    takes="triplets",
    aliases={"mining": "selection", "distance": "geometry"},
    search={"margin": Uniform(-0.2, 2.0)},
)
def triplet(
    selected: Pairs | Triplets | TripletBand,
    *,
    margin: float | None = None,
    soft: bool = False,
    reduction: str | None = None,
) -> Tensor:
    """A negative must be farther than a positive by a margin.

    L = R_{(a,p,n)} [v + margin]₊ or, `soft`, softplus(v + margin), with the violation v = s_an − s_ap. In the
    euclidean geometry v = d_ap − d_an, in the squared one v = d²_ap − d²_an.
    Unless given, the margin is 0.05, 0.2 of squared distances, and 0 for the soft form.
    R = 'nonzero', 'mean', 'sum', 'batch' (the sum / number of queries), 'valid' (the sum / number of queries that have
    triples) or 'none' (every term, in order of anchor, positive, negative); by default 'nonzero' over many triples per
    anchor, 'mean' over listed triples.
    """
    if margin is None:
        pairs = selected if isinstance(selected, Pairs) else selected.pairs
        margin = 0.0 if soft else pairs.default_margin()
    reduction = reduction or ("mean" if isinstance(selected, Triplets) else "nonzero")
    if reduction not in (*REDUCTIONS, "none"):
        raise unknown_name("reduction", reduction, (*REDUCTIONS, "none"))
    if isinstance(selected, Pairs):
        selected = TripletBand(selected)
    # Which anchors have triples is told by a list of them.
    if isinstance(selected, TripletBand) and reduction in ("none", "valid"):
        selected = selected.triplets()
    if isinstance(selected, Triplets):
        return of_listed(selected, margin, soft, reduction)
    # A soft hinge is above zero for every triple, so 'nonzero' and 'mean' are one there.
    only_active = reduction == "nonzero"
    value, number = soft_sum(selected, margin) if soft else hinge_sum(selected, margin, only_active=only_active)
    if reduction == "batch":
        number = value.new_full((), len(selected.pairs.similarity))
    return ratio(value, None if reduction == "sum" else number)


def of_listed(triplets: Triplets, margin: float, soft: bool, reduction: str) -> Tensor:
    """The loss of listed triples."""
    violation = triplets.violation() + margin
    terms = softplus(violation) if soft else violation.relu()
    if reduction == "none":
        return terms
    every = torch.ones_like(terms, dtype=torch.bool)
    if reduction in ("batch", "valid"):
        queries = len(triplets.pairs.similarity) if reduction == "batch" else len(torch.unique(triplets.anchor))
        return ratio(masked_sum(terms, every, triplets.weight), terms.new_full((), queries))
    return reduce(terms, every, triplets.weight, reduction)


def soft_sum(band: TripletBand, margin: float) -> tuple[Tensor, Tensor]:
    """Σ softplus(v + margin) over a band, and the number of triples."""
    return sum_by_slots(band, margin, softplus, only_active=False)


def hinge_sum(band: TripletBand, margin: float, *, only_active: bool) -> tuple[Tensor, Tensor]:
    """Σ [v + margin]₊ over a band, and the number of triples or of those with a term above zero."""
    slots = band.pairs.positive_slots()
    if slots[0].shape[1] > FEW_POSITIVES:
        return sum_by_sorting(band, margin, slots, only_active=only_active)
    if plain_arithmetic():
        return sum_by_slots(band, margin, torch.relu, only_active=only_active)
    value, number, slope = hinges_by_slots(band, margin, slots, only_active=only_active)
    return (value if slope is None else with_gradient(value, band.pairs.similarity, slope)), number


@torch.no_grad()
def hinges_by_slots(
    band: TripletBand, margin: float, slots: tuple[Tensor, Tensor], *, only_active: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Σ [v + margin]₊, a number, and the (Q, R) slope of the sum, None where it is seen to be 0.

    A hinge has slope 1 where it is above zero, so a pair's share in the slope is the number of such triples that it
    is in: added for the negative, taken away for the positive.
    """
    pairs = band.pairs
    similarity, weight = pairs.similarity, pairs.weight
    negatives = torch.where(pairs.negative, similarity, -torch.inf)[:, None]
    slope = None
    value, number = similarity.new_zeros(()), similarity.new_zeros(())
    for columns, is_positive in pairs.slot_groups(slots):
        own = torch.where(is_positive, similarity.gather(1, columns), torch.inf)[:, :, None]
        times = None if weight is None else weight[:, None] * weight.gather(1, columns)[:, :, None]
        violation = negatives - own
        inside = None if band.is_everything else band.indicator(violation)
        terms = violation.add_(margin).relu_()
        if inside is not None:
            terms *= inside
            if not only_active:
                number += inside.sum() if times is None else (inside * times).sum()
        excess = terms.sum() if times is None else (terms * times).sum()
        # Where all hinges are 0, so are their slopes. To ask an accelerator takes longer than to go on.
        if excess.is_cpu and excess == 0:
            continue
        value += excess
        active = terms.sign_() if times is None else terms.sign_().mul_(times)
        of_positives = active.sum(2)
        of_negatives = active[:, 0] if active.shape[1] == 1 else active.sum(1)
        slope = of_negatives if slope is None else slope.add_(of_negatives)
        slope.scatter_add_(1, columns, -of_positives)
        if only_active:
            number += of_positives.sum()
    if band.is_everything and not only_active:
        number = number_of_triples(pairs)
    return value, number, slope


def sum_by_slots(
    band: TripletBand, margin: float, term: Callable[[Tensor], Tensor], *, only_active: bool
) -> tuple[Tensor, Tensor]:
    """Σ term(v + margin) and a number, in one pass over the rows of negatives per positive of an anchor.

    What is no triple has v = −∞, where every term is 0.
    """
    pairs = band.pairs
    similarity, weight = pairs.similarity, pairs.weight
    negatives = torch.where(pairs.negative, similarity, -torch.inf)[:, None]
    values, numbers = [], []
    for columns, is_positive in pairs.slot_groups(pairs.positive_slots()):
        own = torch.where(is_positive, similarity.gather(1, columns), torch.inf)[:, :, None]
        terms = term(negatives - (own - margin))
        times = None if weight is None else weight[:, None] * weight.gather(1, columns)[:, :, None]
        if not band.is_everything:
            inside = band.indicator(negatives - own)
            terms = terms * inside
            if not only_active:
                numbers.append((inside if times is None else inside * times).sum())
        if only_active:
            # The terms are hinges: their signs are 1 where they are above zero.
            active = terms.detach().sign()
            numbers.append((active if times is None else active * times).sum())
        values.append((terms if times is None else terms * times).sum())
    return added(values), added(numbers) if numbers else number_of_triples(pairs)


def number_of_triples(pairs: Pairs) -> Tensor:
    """Σ over the anchors of their positives times their negatives, by multiplicity."""
    positives, negatives = (
        count_rows(mask).to(pairs.similarity.dtype) if pairs.weight is None else (mask * pairs.weight).sum(1)
        for mask in (pairs.positive, pairs.negative)
    )
    return torch.dot(positives, negatives)


def sum_by_sorting(
    band: TripletBand, margin: float, slots: tuple[Tensor, Tensor], *, only_active: bool
) -> tuple[Tensor, Tensor]:
    """The hinge sum in O(Q R log R), however many positives an anchor has.

    For one anchor with its negatives n sorted by similarity, the triples of positive p that lie in a band are a
    stretch of them, so Σ_{p,n} (s_n − s_p + m) = Σ_p (C[high] − C[low] + (W[high] − W[low])(m − s_p)), where C and W
    are prefix sums of the negatives' similarities and multiplicities.
    """
    pairs = band.pairs
    columns, is_positive = slots
    positive = pairs.similarity.gather(1, columns)
    multiplicity = is_positive * pair_weight(pairs, columns)

    order = pairs.similarity.detach().masked_fill(~pairs.negative, torch.inf).argsort(dim=1)
    is_negative = pairs.negative.gather(1, order)
    share = is_negative * pair_weight(pairs, order)
    negative = pairs.similarity.gather(1, order)
    prefix_weight = prefix_sum(share)
    prefix_similarity = prefix_sum(share * negative)

    ascending, own = round_ties(negative).masked_fill(~is_negative, torch.inf), round_ties(positive)
    above_margin = torch.searchsorted(ascending, own - margin, right=True)
    low = torch.maximum(
        torch.searchsorted(ascending, own + band.above, right=True),
        torch.searchsorted(ascending, own + band.at_least, right=False),
    )
    finite = is_negative.sum(1, keepdim=True)
    high = torch.searchsorted(ascending, own + band.below, right=False).minimum(finite)
    low = low.minimum(high)
    active_low = torch.maximum(low, above_margin).minimum(high)

    def stretch(prefix: Tensor, start: Tensor) -> Tensor:
        return prefix.gather(1, high) - prefix.gather(1, start)

    active = stretch(prefix_weight, active_low) * multiplicity
    value = stretch(prefix_similarity, active_low) * multiplicity + active * (margin - positive)
    number = active if only_active else stretch(prefix_weight, low) * multiplicity
    return value.sum(), number.sum()


def pair_weight(pairs: Pairs, columns: Tensor | None = None) -> Tensor:
    """The multiplicity of pairs, all or those at some columns, 1 where none is given."""
    if pairs.weight is None:
        shape = pairs.similarity.shape if columns is None else columns.shape
        return pairs.similarity.new_ones(shape)
    return pairs.weight if columns is None else pairs.weight.gather(1, columns)


def prefix_sum(values: Tensor) -> Tensor:
    """(Q, R + 1) sums of the first 0, 1, … R entries of each row."""
    return torch.nn.functional.pad(values.cumsum(1), (1, 0))
