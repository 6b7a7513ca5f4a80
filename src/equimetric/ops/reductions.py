"""Sums and means over masks: finite, with finite gradients, also where a mask is empty.

All take a boolean `mask` and an optional `weight` (the multiplicity of each entry), both of the shape of `values`.
An empty mask gives 0 that is still connected to the graph, with gradients exactly 0.

Every reduction to a scalar ends in `ratio(numerator, denominator)`. A loss is thus a function of a few ratios of sums
over rows, which lets `ops.chunks` compute it a few rows at a time without the loss knowing.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from equimetric.errors import unknown_name
from equimetric.ops.masks import count_rows, has_any, to_dtype
from equimetric.ops.ratios import divide, ratio
from equimetric.ops.rows import total, uses_plain_sum, weigh_terms

__all__ = [
    "REDUCTIONS",
    "ROW_REDUCTIONS",
    "count",
    "denominator",
    "entry_counts",
    "masked_sum",
    "mean",
    "reduce",
    "reduce_rows",
    "row_max",
    "row_mean",
    "row_min",
    "row_sum",
    "weigh",
]


def weigh(values: Tensor, mask: Tensor, weight: Tensor | None) -> Tensor:
    """Multiply values inside the mask by their multiplicity; 0 outside, even where the value is Inf or NaN."""
    masked = torch.where(mask, values, 0.0)
    return masked if weight is None else masked * weight


def entry_counts(mask: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The count of each entry: its multiplicity inside the mask, 0 outside."""
    return to_dtype(mask, dtype) if weight is None else mask * weight


def masked_sum(values: Tensor, mask: Tensor, weight: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
    """Σ values inside the mask, the numerator of a `ratio`; listed (T,) values belong to the queries `rows`."""
    return total(weigh(values, mask, weight), rows)


def count(mask: Tensor, weight: Tensor | None, dtype: torch.dtype, rows: Tensor | None = None) -> Tensor:
    """Count the entries in the mask, by multiplicity; listed (T,) entries belong to the queries `rows`."""
    if not uses_plain_sum():
        return total(entry_counts(mask, weight, dtype).to(dtype), rows)
    # count_nonzero, because summing booleans goes through 64-bit integers and takes twenty times as long.
    return mask.count_nonzero().to(dtype) if weight is None else (mask * weight).sum().to(dtype)


def mean(
    values: Tensor, mask: Tensor | None = None, weight: Tensor | None = None, rows: Tensor | None = None
) -> Tensor:
    """Mean of the entries in the mask; without a mask of all (Q,) values, those that are 0 included.

    Listed (T,) values, which need a mask, belong to the queries `rows`.
    """
    if mask is None:
        num_rows = values.new_full((), values.shape[0]) if uses_plain_sum() else total(torch.ones_like(values))
        return ratio(total(values), num_rows)
    return ratio(masked_sum(values, mask, weight, rows), count(mask, weight, values.dtype, rows))


REDUCTIONS = ("nonzero", "mean", "sum", "batch", "valid")
"""A sum of terms is divided by the number of those above zero, of all, by nothing, by the number of rows, or by the
number of rows that have terms."""


def denominator(
    reduction: str,
    mask: Tensor,
    weight: Tensor | None,
    dtype: torch.dtype,
    active: Callable[[], Tensor],
    rows: Tensor | None = None,
) -> Tensor | None:
    """The number by which a reduction divides Σ over a mask, None for a sum; `active` counts the terms above zero.

    A list of (T,) terms of the queries `rows` has no 'batch' or 'valid'.
    """
    if reduction not in REDUCTIONS:
        raise unknown_name("reduction", reduction, (*REDUCTIONS, "none"))
    if reduction == "nonzero":
        return active()
    if reduction == "mean":
        return count(mask, weight, dtype, rows)
    if reduction == "sum":
        return None
    counted = torch.ones_like(mask[:, 0]) if reduction == "batch" else has_any(mask)
    return count(counted, None, dtype)


def reduce(values: Tensor, mask: Tensor, weight: Tensor | None, reduction: str, rows: Tensor | None = None) -> Tensor:
    """Reduce terms by one of `REDUCTIONS`, listed (T,) terms of the queries `rows` by 'nonzero', 'mean' or 'sum'."""

    def active() -> Tensor:
        return count(mask & (values > 0), weight, values.dtype, rows)

    divisor = denominator(reduction, mask, weight, values.dtype, active, rows)
    return ratio(masked_sum(values, mask, weight, rows), divisor)


def row_sum(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """(…,) sum of each row's entries, of values finite everywhere.

    Entries outside are multiplied by 0, which is faster than leaving them out.
    """
    sums: Tensor = torch.linalg.vecdot(values, entry_counts(mask, weight, values.dtype))
    return sums


def row_mean(values: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """(Q,) mean of each row's entries, of values finite everywhere; 0 for an empty row."""
    counts = count_rows(mask).to(values.dtype) if weight is None else (mask * weight).sum(1)
    return divide(row_sum(values, mask, weight), counts)


ROW_REDUCTIONS = ("mean", "valid", "batch", "sum", "none")


def reduce_rows(
    values: Tensor, valid: Tensor | None, reduction: str, choices: Sequence[str] = ROW_REDUCTIONS
) -> Tensor:
    """Reduce one value per row: 'mean' or 'valid' is the mean over the valid rows, 'batch' the sum / number of all
    rows, 'sum' the sum, 'none' the vector itself.

    `valid` is None where all rows are; `choices` are the reductions that the caller accepts.
    """
    if reduction not in choices:
        raise unknown_name("reduction", reduction, choices)
    if reduction in ("mean", "valid"):
        return mean(values, valid)
    if valid is not None:
        values = torch.where(valid, values, torch.zeros_like(values))
    if reduction == "batch":
        return mean(values)
    return weigh_terms(values) if reduction == "none" else ratio(total(values), None)


def row_max(values: Tensor, mask: Tensor) -> Tensor:
    """(…, 1) largest entry of each row; −∞ for an empty row."""
    return torch.where(mask, values, -torch.inf).amax(-1, keepdim=True)


def row_min(values: Tensor, mask: Tensor) -> Tensor:
    """(…, 1) smallest entry of each row; +∞ for an empty row."""
    return torch.where(mask, values, torch.inf).amin(-1, keepdim=True)
