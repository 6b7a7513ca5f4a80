"""Sums over triples (anchor, positive, negative) without listing them: O(B³) triples at about the cost of B² pairs."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from equimetric.errors import unknown_name
from equimetric.ops.gradients import sum_scalars, with_gradient
from equimetric.ops.masks import columns_of, count_rows
from equimetric.ops.positive_pairs import split_columns
from equimetric.ops.products import is_tracing
from equimetric.ops.ratios import ratio
from equimetric.ops.reductions import REDUCTIONS, count, masked_sum, reduce
from equimetric.ops.rows import total, uses_plain_sum, weigh_terms
from equimetric.pairs import Pairs, Selected, TripletBand, Triplets, round_ties

__all__ = ["multiplicity", "triplet_sum"]

FEW_POSITIVES = 16
"""Up to this many positives per anchor, one pass for each is faster than sorting."""


def triplet_sum(
    selected: Selected, margin: float, *, soft: bool = False, swap: bool = False, reduction: str = "nonzero"
) -> Tensor:
    """R of [v + margin]₊ or, `soft`, softplus(v + margin) over triples, with the violation v = s_an − s_ap.

    With `swap` it is v = max(s_an, s_pn) − s_ap, of references that are the batch itself.

    R is one of `reductions.REDUCTIONS`, rows being queries, or 'none' for every term in order of anchor, positive,
    negative.
    """
    if reduction not in (*REDUCTIONS, "none"):
        raise unknown_name("reduction", reduction, (*REDUCTIONS, "none"))
    band = TripletBand(selected) if isinstance(selected, Pairs) else selected
    # Only a list shows which anchors have triples, or reaches from the positive to the negative.
    if isinstance(band, TripletBand) and (swap or reduction in ("none", "valid")):
        band = band.triplets()
    if isinstance(band, Triplets):
        return sum_listed(band, margin, soft=soft, swap=swap, reduction=reduction)
    # A soft hinge is above zero for every triple, so 'nonzero' and 'mean' are the same there.
    only_active = reduction == "nonzero" and not soft
    if soft:
        value, denominator = sum_by_positive(band, margin, softplus, only_active=False)
    else:
        value, denominator = sum_band(band, margin, only_active=only_active)
    if reduction == "batch":
        denominator = count_queries(band.pairs)
    return ratio(value, None if reduction == "sum" else denominator)


def sum_listed(triplets: Triplets, margin: float, *, soft: bool, swap: bool, reduction: str) -> Tensor:
    """Reduce the terms of listed triples."""
    violation = (triplets.swapped_violation() if swap else triplets.violation()) + margin
    terms = softplus(violation) if soft else violation.relu()
    weight, anchor = triplets.weight, triplets.anchor
    if reduction == "none":
        weighted = weight is not None and not uses_plain_sum()
        return weigh_terms(terms * weight if weighted and weight is not None else terms, anchor)
    all_terms = torch.ones_like(terms, dtype=torch.bool)
    if reduction in ("batch", "valid"):
        num_queries = count_queries(triplets.pairs, None if reduction == "batch" else anchor)
        return ratio(masked_sum(terms, all_terms, weight, anchor), num_queries)
    return reduce(terms, all_terms, weight, reduction, anchor)


def count_queries(pairs: Pairs, anchor: Tensor | None = None) -> Tensor:
    """Count the queries, or those that are the anchor of a listed triple, by multiplicity."""
    queries = len(pairs.similarity)
    if uses_plain_sum():
        return pairs.similarity.new_full((), queries if anchor is None else len(torch.unique(anchor)))
    present = torch.full((queries,), anchor is None, device=pairs.similarity.device)
    if anchor is not None:
        present[anchor] = True
    return count(present, None, pairs.similarity.dtype)


def sum_band(band: TripletBand, margin: float, *, only_active: bool) -> tuple[Tensor, Tensor]:
    """Σ [v + margin]₊ over a band, and the number of triples or of those with a term above zero."""
    if torch.compiler.is_compiling():
        # How many positives there are depends on data; sorting visits all columns as fast as a few.
        columns = torch.arange(band.pairs.positive.shape[1], device=band.pairs.positive.device)
        all_columns = columns.expand_as(band.pairs.positive), band.pairs.positive
        return sum_by_sorting(band, margin, all_columns, only_active=only_active)
    positives = columns_of(band.pairs.positive)
    if positives[0].shape[1] > FEW_POSITIVES:
        return sum_by_sorting(band, margin, positives, only_active=only_active)
    if is_tracing() or not uses_plain_sum():
        return sum_by_positive(band, margin, torch.relu, only_active=only_active)
    value, num_terms, gradient = sum_with_gradient(band, margin, positives, only_active=only_active)
    return (value if gradient is None else with_gradient(value, band.pairs.similarity, gradient)), num_terms


@torch.no_grad()
def sum_with_gradient(
    band: TripletBand, margin: float, positives: tuple[Tensor, Tensor], *, only_active: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Σ [v + margin]₊, a count as in `sum_band`, and the (Q, R) gradient of the sum, None where it is known to be 0.

    A hinge above zero has derivative 1, so the gradient of a pair is the number of such triples that it is in: added
    for the negative, subtracted for the positive.
    """
    pairs = band.pairs
    similarity, weight = pairs.similarity, pairs.weight
    negatives = torch.where(pairs.negative, similarity, -torch.inf)[:, None]
    gradient = None
    value, num_terms = similarity.new_zeros(()), similarity.new_zeros(())
    for columns, is_positive in split_columns(positives, similarity.numel()):
        positive_similarity = torch.where(is_positive, similarity.gather(1, columns), torch.inf)[:, :, None]
        counts = None if weight is None else weight[:, None] * weight.gather(1, columns)[:, :, None]
        violation = negatives - positive_similarity
        in_band = None if band.is_unbounded else band.indicator(violation)
        terms = violation.add_(margin).relu_()
        if in_band is not None:
            terms *= in_band
            if not only_active:
                num_terms += in_band.sum() if counts is None else (in_band * counts).sum()
        excess = terms.sum() if counts is None else (terms * counts).sum()
        # Where all hinges are 0, so are their gradients. On an accelerator asking takes longer than computing them.
        if excess.is_cpu and excess == 0:
            continue
        value += excess
        active = terms.sign_() if counts is None else terms.sign_().mul_(counts)
        positive_counts = active.sum(2)
        negative_counts = active[:, 0] if active.shape[1] == 1 else active.sum(1)
        gradient = negative_counts if gradient is None else gradient.add_(negative_counts)
        gradient.scatter_add_(1, columns, -positive_counts)
        if only_active:
            num_terms += positive_counts.sum()
    if band.is_unbounded and not only_active:
        num_terms = count_triples(pairs)
    return value, num_terms, gradient


def sum_by_positive(
    band: TripletBand, margin: float, term: Callable[[Tensor], Tensor], *, only_active: bool
) -> tuple[Tensor, Tensor]:
    """Σ term(v + margin) and a count as in `sum_band`, one pass over the rows of negatives per positive of an anchor.

    What is no triple has v = −∞, where every term is 0.
    """
    pairs = band.pairs
    similarity, weight = pairs.similarity, pairs.weight
    negatives = torch.where(pairs.negative, similarity, -torch.inf)[:, None]
    values, term_counts = [], []
    for columns, is_positive in split_columns(columns_of(pairs.positive), similarity.numel()):
        positive_similarity = torch.where(is_positive, similarity.gather(1, columns), torch.inf)[:, :, None]
        terms = term(negatives - (positive_similarity - margin))
        counts = None if weight is None else weight[:, None] * weight.gather(1, columns)[:, :, None]
        if not band.is_unbounded:
            in_band = band.indicator(negatives - positive_similarity)
            terms = terms * in_band
            if not only_active:
                term_counts.append(total(in_band if counts is None else in_band * counts))
        if only_active:
            # The terms are hinges: their signs are 1 where they are above zero.
            active = terms.detach().sign()
            term_counts.append(total(active if counts is None else active * counts))
        values.append(total(terms if counts is None else terms * counts))
    return sum_scalars(values), sum_scalars(term_counts) if term_counts else count_triples(pairs)


def count_triples(pairs: Pairs) -> Tensor:
    """Σ over the anchors of their positives times their negatives, by multiplicity."""
    positives, negatives = (
        count_rows(mask).to(pairs.similarity.dtype) if pairs.weight is None else (mask * pairs.weight).sum(1)
        for mask in (pairs.positive, pairs.negative)
    )
    return torch.dot(positives, negatives) if uses_plain_sum() else total(positives * negatives)


def sum_by_sorting(
    band: TripletBand, margin: float, positives: tuple[Tensor, Tensor], *, only_active: bool
) -> tuple[Tensor, Tensor]:
    """The sum of hinges in O(Q R log R), however many positives an anchor has.

    For one anchor with its negatives n sorted by similarity, the triples of positive p that lie in a band are a
    stretch of them, so Σ_{p,n} (s_n − s_p + m) = Σ_p (C[high] − C[low] + (W[high] − W[low])(m − s_p)), where C and W
    are prefix sums of the negatives' similarities and multiplicities.
    """
    pairs = band.pairs
    columns, is_positive = positives
    positive_similarity = pairs.similarity.gather(1, columns)
    counts = is_positive * multiplicity(pairs, columns)

    order = pairs.similarity.detach().masked_fill(~pairs.negative, torch.inf).argsort(dim=1)
    is_negative = pairs.negative.gather(1, order)
    negative_counts = is_negative * multiplicity(pairs, order)
    negative_similarity = pairs.similarity.gather(1, order)
    prefix_weight = prefix_sum(negative_counts)
    prefix_similarity = prefix_sum(negative_counts * negative_similarity)

    ascending, thresholds = (
        round_ties(negative_similarity).masked_fill(~is_negative, torch.inf),
        round_ties(positive_similarity),
    )
    above_margin = torch.searchsorted(ascending, thresholds - margin, right=True)
    low = torch.maximum(
        torch.searchsorted(ascending, thresholds + band.above, right=True),
        torch.searchsorted(ascending, thresholds + band.at_least, right=False),
    )
    num_negatives = is_negative.sum(1, keepdim=True)
    high = torch.searchsorted(ascending, thresholds + band.below, right=False).minimum(num_negatives)
    low = low.minimum(high)
    active_low = torch.maximum(low, above_margin).minimum(high)

    def stretch(prefix: Tensor, start: Tensor) -> Tensor:
        return prefix.gather(1, high) - prefix.gather(1, start)

    active = stretch(prefix_weight, active_low) * counts
    value = stretch(prefix_similarity, active_low) * counts + active * (margin - positive_similarity)
    num_terms = active if only_active else stretch(prefix_weight, low) * counts
    return total(value), total(num_terms)


def multiplicity(pairs: Pairs, columns: Tensor) -> Tensor:
    """The multiplicity of the pairs at some columns of each row; 1 where pairs have no weight."""
    return pairs.similarity.new_ones(columns.shape) if pairs.weight is None else pairs.weight.gather(1, columns)


def prefix_sum(values: Tensor) -> Tensor:
    """(Q, R + 1) sums of the first 0, 1, … R entries of each row."""
    return torch.nn.functional.pad(values.cumsum(1), (1, 0))
