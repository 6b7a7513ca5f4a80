"""Sums of hinges [s − m]₊ over masks: the two halves of a contrastive loss, with their slope written down at once."""

from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np
import torch
from torch import Tensor

from equimetric.ops.masks import FEW_OF, flatnonzero, has_any
from equimetric.ops.products import plain_arithmetic
from equimetric.ops.reductions import (
    FEW,
    mean_valid,
    number_to_divide_by,
    quotient,
    ratio,
    ratios_are_deferred,
    row_mean,
    times,
    with_gradient,
)

__all__ = ["Hinge", "added_hinges"]


@dataclass(frozen=True, eq=False)
class Hinge:
    """Terms [values − boundary]₊, or `below` it [boundary − values]₊, of the entries in a mask."""

    mask: Tensor
    boundary: float
    below: bool
    factor: float = 1.0
    """Times which the reduced terms count."""

    def excess(self, values: Tensor) -> Tensor:
        """How far values lie beyond the boundary; below zero where they do not."""
        return self.boundary - values if self.below else values - self.boundary

    def inclusive(self, dtype: torch.dtype) -> "Hinge":
        """The same with the boundary moved by the least step there is, so that what lies on it lies beyond it."""
        kind = np.float32 if dtype == torch.float32 else np.float64
        moved = np.nextafter(kind(self.boundary), kind(inf if self.below else -inf))
        return replace(self, boundary=float(moved))

    def scaled(self, reduced: Tensor) -> Tensor:
        """The reduced terms, times their factor."""
        return reduced if self.factor == 1 else self.factor * reduced


def added_hinges(
    values: Tensor,
    few: Hinge,
    many: Hinge,
    weight: Tensor | None,
    reduction: str,
    *,
    power: int = 1,
    inclusive: bool = False,
) -> Tensor:
    """Σ factor · R of hinge^power over two masks without a common entry, of values finite everywhere.

    R is one of `reductions.REDUCTIONS`, each hinge by itself; 'anchor' is the mean within each row that has
    entries, then over these rows; 'none' gives all terms, those of the first mask before those of the second.
    `inclusive` counts a term that lies on the boundary among those above zero.
    """
    if reduction == "none":
        return torch.cat([hinge.scaled(hinge.excess(values)[hinge.mask].relu() ** power) for hinge in (few, many)])
    if reduction == "anchor":
        terms = [row_mean(hinge.excess(values).relu() ** power, hinge.mask, weight) for hinge in (few, many)]
        parts = [mean_valid(part, has_any(hinge.mask)) for part, hinge in zip(terms, (few, many), strict=True)]
        return few.scaled(parts[0]) + many.scaled(parts[1])
    closed = power == 1 and values.numel() > FEW and not plain_arithmetic()
    if closed and weight is None and not ratios_are_deferred():
        value = with_slope(values, few, many, reduction, inclusive=inclusive)
        if value is not None:
            return value
    reduced = partial(reduced_hinge, values, weight=weight, reduction=reduction, power=power, inclusive=inclusive)
    return few.scaled(reduced(few, closed=closed)) + many.scaled(reduced(many, closed=closed))


def reduced_hinge(
    values: Tensor,
    hinge: Hinge,
    *,
    weight: Tensor | None,
    reduction: str,
    power: int,
    inclusive: bool,
    closed: bool,
) -> Tensor:
    """R of the terms of one hinge, whatever its factor."""
    counted = times(hinge.mask, weight, values.dtype)
    if closed:
        value, active, slope = sum_of_hinges(values, hinge, counted, inclusive=inclusive)
        numerator = with_gradient(value, values, slope)
    else:
        # Terms can be multiplied by the mask, which is faster than choosing by it.
        excess = hinge.excess(values)
        reached = counted * (excess >= 0 if inclusive else excess > 0)
        terms = excess if power == 1 else excess.relu() ** power
        numerator = torch.dot(terms.flatten(), reached.flatten())
        active = reached.sum()
    return ratio(numerator, number_to_divide_by(reduction, hinge.mask, weight, values.dtype, lambda: active))


def with_slope(values: Tensor, few: Hinge, many: Hinge, reduction: str, *, inclusive: bool) -> Tensor | None:
    """Both reduced hinges as one closed form, where all but a few entries are in the mask of the many; else None.

    Terms and slopes of the many are computed as if the mask held everything, and what it does not hold is written
    over: to look for it takes a fraction of the time of going over the whole mask as numbers.
    """
    values = values.contiguous()
    elsewhere = flatnonzero(~many.mask)
    if FEW_OF * len(elsewhere) > values.numel():
        return None
    with torch.no_grad():
        value = values.new_zeros(())
        slopes: list[Tensor] = []
        inside = few.mask.reshape(-1)[elsewhere]
        for hinge, entries, absent in ((many, values, elsewhere), (few, values.reshape(-1)[elsewhere], ~inside)):
            # One matrix for all of it: fresh memory is filled slowly.
            boundary = hinge.inclusive(values.dtype) if inclusive else hinge
            terms = boundary.excess(entries).relu_()
            terms.view(-1)[absent] = 0
            total = terms.sum()
            slope = terms.sign_()
            number = number_to_divide_by(reduction, hinge.mask, None, values.dtype, slope.sum)
            share = quotient(torch.full_like(value, hinge.factor), number)
            value += total * share
            slopes.append(slope.mul_(-share if hinge.below else share))
        slopes[0].view(-1)[elsewhere] = slopes[1]
    return with_gradient(value, values, slopes[0])


@torch.no_grad()
def sum_of_hinges(values: Tensor, hinge: Hinge, counted: Tensor, *, inclusive: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Σ counted · hinge, how many of them are above zero, and the slope of the sum, ±1 for each of these.

    What `counted` holds is used up.
    """
    beyond = {(False, False): torch.gt, (False, True): torch.ge, (True, False): torch.lt, (True, True): torch.le}
    # Into numbers, for comparing into booleans takes longer.
    slope = beyond[hinge.below, inclusive](values, hinge.boundary, out=torch.empty_like(values)).mul_(counted)
    active = slope.sum()
    if hinge.below:
        slope.neg_()
    value = torch.dot(torch.sub(values, hinge.boundary, out=counted).flatten(), slope.flatten())
    return value, active, slope
