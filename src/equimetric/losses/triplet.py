"""Triplet loss over all triples, a band of them, or a list."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.errors import unknown_name
from equimetric.pairs import Pairs, TripletBand, Triplets
from equimetric.reductions import count, masked_sum, ratio, reduce
from equimetric.registry import loss
from equimetric.search_space import Uniform

__all__ = ["triplet"]

FEW_POSITIVES = 16
"""Up to so many positives per anchor, one pass for each is faster than sorting."""

TOGETHER = 2**17
"""Triples in one pass."""


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
    margin: float = 0.05,
    soft: bool = False,
    reduction: str | None = None,
) -> Tensor:
    """A negative must be farther than a positive by a margin.

    L = R_{(a,p,n)} [v + margin]₊ or, `soft`, softplus(v + margin), with the violation v = s_an − s_ap. In the
    euclidean geometry v = d_ap − d_an, in the squared one v = d²_ap − d²_an.
    R = 'nonzero', 'mean' or 'sum'; by default 'nonzero' over many triples per anchor, 'mean' over listed triples.
    Over many triples also 'batch', the sum / number of queries.
    """
    if isinstance(selected, Triplets):
        violation = selected.violation() + margin
        terms = softplus(violation) if soft else violation.relu()
        return reduce(terms, torch.ones_like(terms, dtype=torch.bool), selected.weight, reduction or "mean")
    band = TripletBand(selected) if isinstance(selected, Pairs) else selected
    value, active, present = soft_sum(band, margin) if soft else hinge_sum(band, margin)
    # A soft hinge is above zero for every triple, so 'nonzero' and 'mean' are one there.
    batch = torch.full_like(value, len(band.pairs.similarity)).detach()
    denominators = {"nonzero": active, "mean": present, "sum": torch.ones_like(value), "batch": batch}
    reduction = reduction or "nonzero"
    if reduction not in denominators:
        raise unknown_name("reduction", reduction, denominators)
    return ratio(value, denominators[reduction])


def soft_sum(band: TripletBand, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """Σ softplus(v + margin) over a band and, twice, the number of triples."""
    return sum_by_slots(band, band.pairs.positive_slots(), margin, soft=True)


def hinge_sum(band: TripletBand, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """Σ [v + margin]₊ over a band, the number of terms above zero, and the number of triples."""
    slots = band.pairs.positive_slots()
    if slots[0].shape[1] <= FEW_POSITIVES:
        return sum_by_slots(band, slots, margin, soft=False)
    return sum_by_sorting(band, slots, margin)


def sum_by_slots(
    band: TripletBand, slots: tuple[Tensor, Tensor], margin: float, soft: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Either sum, with one pass over the rows of negatives per positive of an anchor: fastest where they are few."""
    pairs = band.pairs
    similarity, weight = pairs.similarity[:, None], pairs.weight
    value = active = present = pairs.similarity.new_zeros(())
    # Several slots at once where the batch is small: (Q, slots, R).
    together = max(1, TOGETHER // max(1, pairs.similarity.numel()))
    for columns, is_positive in zip(*(torch.split(slot, together, dim=1) for slot in slots), strict=True):
        violation = similarity - pairs.similarity.gather(1, columns)[:, :, None]
        terms = softplus(violation + margin) if soft else (violation + margin).relu()
        chosen = pairs.negative[:, None] & is_positive[:, :, None]
        if not band.is_everything:
            chosen = chosen & band.holds(violation.detach())
        times = None if weight is None else weight[:, None] * weight.gather(1, columns)[:, :, None]
        value = value + masked_sum(terms, chosen, times)
        active = active + count(chosen & (terms.detach() > 0), times, value.dtype)
        present = present + count(chosen, times, value.dtype)
    return value, active, present


def sum_by_sorting(band: TripletBand, slots: tuple[Tensor, Tensor], margin: float) -> tuple[Tensor, Tensor, Tensor]:
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

    ascending = negative.detach().masked_fill(~is_negative, torch.inf)
    above_margin = torch.searchsorted(ascending, positive.detach() - margin, right=True)
    low = torch.maximum(
        torch.searchsorted(ascending, positive.detach() + band.above, right=True),
        torch.searchsorted(ascending, positive.detach() + band.at_least, right=False),
    )
    finite = is_negative.sum(1, keepdim=True)
    high = torch.searchsorted(ascending, positive.detach() + band.below, right=False).minimum(finite)
    low = low.minimum(high)
    active_low = torch.maximum(low, above_margin).minimum(high)

    def stretch(prefix: Tensor, start: Tensor) -> Tensor:
        return prefix.gather(1, high) - prefix.gather(1, start)

    active = stretch(prefix_weight, active_low) * multiplicity
    value = stretch(prefix_similarity, active_low) * multiplicity + active * (margin - positive)
    present = stretch(prefix_weight, low) * multiplicity
    return value.sum(), active.sum(), present.sum()


def pair_weight(pairs: Pairs, columns: Tensor | None = None) -> Tensor:
    """The multiplicity of pairs, all or those at some columns, 1 where none is given."""
    if pairs.weight is None:
        shape = pairs.similarity.shape if columns is None else columns.shape
        return pairs.similarity.new_ones(shape)
    return pairs.weight if columns is None else pairs.weight.gather(1, columns)


def prefix_sum(values: Tensor) -> Tensor:
    """(Q, R + 1) sums of the first 0, 1, … R entries of each row."""
    return torch.nn.functional.pad(values.cumsum(1), (1, 0))
