"""Truth values seen as the bytes they are: processors go over numbers several times faster than over booleans."""

import torch
from torch import Tensor

__all__ = ["as_numbers", "columns_of", "has_any", "number_of"]

WORD = 8
"""Booleans that are read at once, as one 64-bit number."""

MANY = 2**16
"""From so many entries on, looking for the few that are true pays by words."""


def as_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """1 and 0 for true and false."""
    return mask.view(torch.uint8).to(dtype)


def has_any(mask: Tensor) -> Tensor:
    """(Q, R) → (Q,) bool: whether anything in a row is true."""
    return mask.view(torch.uint8).amax(1).bool() if mask.shape[1] else mask.any(1)


def number_of(mask: Tensor) -> Tensor:
    """(Q, R) → (Q,) int32: how many in a row are true."""
    return mask.view(torch.uint8).sum(1, dtype=torch.int32)


def columns_of(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of what is true, packed to the left: (Q, K) indices and (Q, K) bool, K = the most of any row."""
    numbers = number_of(mask)
    most = int(numbers.max()) if len(numbers) else 0
    if mask.numel() < MANY or most * WORD > mask.shape[1]:
        found, columns = mask.view(torch.uint8).topk(most, dim=1)
        return columns, found.bool()
    row, column = places_of(mask)
    slot = torch.arange(len(row), device=mask.device) - (numbers.cumsum(0) - numbers)[row]
    columns = column.new_zeros(len(mask), most)
    columns[row, slot] = column
    return columns, torch.arange(most, device=mask.device) < numbers[:, None]


def places_of(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of each entry that is true, in order; words without any are passed over as a whole."""
    if mask.shape[1] % WORD or not mask.is_contiguous():
        row, column = mask.nonzero(as_tuple=True)
        return row, column
    places = mask.view(torch.int64).nonzero()
    row, word = places.unbind(1)
    which, offset = mask.view(len(mask), -1, WORD)[row, word].nonzero(as_tuple=True)
    return row[which], word[which] * WORD + offset
