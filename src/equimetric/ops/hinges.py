"""Sums of hinges over two masks, in one pass and with their gradient known where that is faster.

A contrastive loss is two hinges of the same distances, [d − m⁺]₊ over positives and [m⁻ − d]₊ over negatives.
"""

from dataclasses import dataclass, replace
from math import inf

import numpy as np
import torch
from torch import Tensor

from equimetric.ops.gradients import with_gradient
from equimetric.ops.masks import SPARSE_RATIO, flatnonzero, has_any
from equimetric.ops.products import is_tracing
from equimetric.ops.ratios import quotient, ratio, ratios_are_deferred
from equimetric.ops.reductions import denominator, entry_counts, mean, row_mean
from equimetric.ops.rows import total, uses_plain_sum, weigh_terms
from equimetric.pairs import Pairs

__all__ = ["Affine", "Hinge", "distance", "similarity", "sum_hinges"]

SMALL_NUMEL = 2**14
"""Up to this many numbers, calls cost more than what they compute."""


@dataclass(frozen=True, eq=False)
class Affine:
    """sign · values + offset, not yet computed: `a - margin` and `margin - a` cost nothing."""

    values: Tensor
    sign: int = 1
    offset: float = 0.0

    def __sub__(self, margin: float) -> "Affine":
        return Affine(self.values, self.sign, self.offset - margin)

    def __rsub__(self, margin: float) -> "Affine":
        return Affine(self.values, -self.sign, margin - self.offset)

    def compute(self, values: Tensor | None = None) -> Tensor:
        """The tensor, or the same function of other values."""
        values = self.values if values is None else values
        return values + self.offset if self.sign > 0 else self.offset - values

    @property
    def boundary(self) -> float:
        """The value at which the tensor is 0."""
        return -self.sign * self.offset


def similarity(pairs: Pairs) -> Affine:
    """(Q, R) similarities for a `Hinge`."""
    return Affine(pairs.similarity)


def distance(pairs: Pairs) -> Affine:
    """(Q, R) distances for a `Hinge`; the similarity itself, negated, where the geometry allows it."""
    negated = pairs.geometry is None or pairs.geometry.to_distance is torch.neg
    return Affine(pairs.similarity, sign=-1) if negated else Affine(pairs.distance())


@dataclass(frozen=True, eq=False)
class Hinge:
    """Terms [excess]₊ of the entries in a mask."""

    excess: Affine
    mask: Tensor
    factor: float = 1.0
    """Weight of the reduced terms."""

    def inclusive(self) -> "Hinge":
        """The same with the boundary moved by the least possible step, so that values on it have a term."""
        kind = np.float32 if self.excess.values.dtype == torch.float32 else np.float64
        next_value = float(np.nextafter(kind(self.excess.boundary), kind(-self.excess.sign * inf)))
        return replace(self, excess=replace(self.excess, offset=-self.excess.sign * next_value))

    def scale(self, reduced: Tensor) -> Tensor:
        """The reduced terms times their factor."""
        return reduced if self.factor == 1 else self.factor * reduced


def sum_hinges(
    few: Hinge,
    many: Hinge,
    weight: Tensor | None,
    reduction: str,
    *,
    power: int = 1,
    inclusive: bool = False,
) -> Tensor:
    """Σ factor · R of [excess]₊^power over two masks without a common entry, of the same values, finite everywhere.

    R is one of `reductions.REDUCTIONS`, for each hinge by itself; 'anchor' is the mean within each row that has
    entries, then over these rows; 'none' gives all terms, those of the first mask before those of the second.
    `inclusive` counts a term on the boundary among those above zero.
    """
    both = (few, many)
    if reduction == "none":
        return torch.cat([hinge.scale(list_terms(hinge, weight, power)) for hinge in both])
    if reduction == "anchor":
        terms = [row_mean(hinge.excess.compute().relu() ** power, hinge.mask, weight) for hinge in both]
        means = [mean(part, has_any(hinge.mask)) for part, hinge in zip(terms, both, strict=True)]
        return few.scale(means[0]) + many.scale(means[1])
    closed_form = power == 1 and few.excess.values.numel() > SMALL_NUMEL and uses_plain_sum() and not is_tracing()
    if closed_form and weight is None and not ratios_are_deferred():
        value = fuse_hinges(few, many, reduction, inclusive=inclusive)
        if value is not None:
            return value
    reduced = [
        hinge.scale(reduce_hinge(hinge, weight, reduction, power=power, inclusive=inclusive, closed_form=closed_form))
        for hinge in both
    ]
    return reduced[0] + reduced[1]


def list_terms(hinge: Hinge, weight: Tensor | None, power: int) -> Tensor:
    """(T,) every term, without its factor; where queries have weights, times the multiplicity of its pair."""
    terms = hinge.excess.compute()[hinge.mask].relu() ** power
    if uses_plain_sum():
        return terms
    rows = hinge.mask.nonzero()[:, 0]
    return weigh_terms(terms if weight is None else terms * weight[hinge.mask], rows)


def reduce_hinge(
    hinge: Hinge, weight: Tensor | None, reduction: str, *, power: int, inclusive: bool, closed_form: bool
) -> Tensor:
    """R of the terms of one hinge, without its factor."""
    values = hinge.excess.values
    counts = entry_counts(hinge.mask, weight, values.dtype)
    if closed_form:
        value, active, gradient = hinge_with_gradient(hinge.excess, counts, inclusive=inclusive)
        numerator = with_gradient(value, values, gradient)
    else:
        # Multiplying by the mask is faster than choosing by it.
        excess = hinge.excess.compute()
        active_counts = counts * (excess >= 0 if inclusive else excess > 0)
        terms = excess if power == 1 else excess.relu() ** power
        numerator = (
            torch.dot(terms.flatten(), active_counts.flatten()) if uses_plain_sum() else total(terms * active_counts)
        )
        active = total(active_counts)
    return ratio(numerator, denominator(reduction, hinge.mask, weight, values.dtype, lambda: active))


def fuse_hinges(few: Hinge, many: Hinge, reduction: str, *, inclusive: bool) -> Tensor | None:
    """Both reduced hinges with one gradient matrix, where all but a few entries are in the mask of `many`; else None.

    Terms and gradients of `many` are computed as if its mask held everything, and then overwritten where it does not:
    listing these entries takes a fraction of the time of converting the whole mask to numbers.
    """
    values = many.excess.values.contiguous()
    others = flatnonzero(~many.mask)
    if SPARSE_RATIO * len(others) > values.numel():
        return None
    with torch.no_grad():
        value = values.new_zeros(())
        gradients: list[Tensor] = []
        inside = few.mask.reshape(-1)[others]
        for hinge, entries, excluded in ((many, values, others), (few, values.reshape(-1)[others], ~inside)):
            # One matrix for all steps: fresh memory is filled slowly.
            terms = (hinge.inclusive() if inclusive else hinge).excess.compute(entries).relu_()
            terms.view(-1)[excluded] = 0
            term_sum = terms.sum()
            gradient = terms.sign_()
            divisor = denominator(reduction, hinge.mask, None, values.dtype, gradient.sum)
            factor = quotient(torch.full_like(value, hinge.factor), divisor)
            value += term_sum * factor
            gradients.append(gradient.mul_(hinge.excess.sign * factor))
        gradients[0].view(-1)[others] = gradients[1]
    return with_gradient(value, values, gradients[0])


@torch.no_grad()
def hinge_with_gradient(excess: Affine, counts: Tensor, *, inclusive: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Σ counts · [excess]₊, the number of terms above zero, and the gradient of the sum. Overwrites `counts`."""
    is_below = excess.sign < 0
    comparisons = {(False, False): torch.gt, (False, True): torch.ge, (True, False): torch.lt, (True, True): torch.le}
    # Into numbers, because comparing into booleans takes longer.
    gradient = comparisons[is_below, inclusive](excess.values, excess.boundary, out=torch.empty_like(excess.values))
    gradient.mul_(counts)
    active = gradient.sum()
    if is_below:
        gradient.neg_()
    value = torch.dot(torch.sub(excess.values, excess.boundary, out=counts).flatten(), gradient.flatten())
    return value, active, gradient
