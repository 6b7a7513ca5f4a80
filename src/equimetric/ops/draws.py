"""Choosing entries of a similarity matrix: at random, or the largest."""

import torch
from torch import Tensor

from equimetric.ops.masks import flatnonzero

__all__ = ["draw_columns", "hardest_entries", "row_argmax", "row_argmin"]


def draw_columns(chances: Tensor, generator: torch.Generator | None) -> Tensor:
    """(T,) one column of each row of (T, R) `chances`, in proportion to them, from torch's global generator if None.

    Every row needs a chance above zero.
    """
    if not len(chances):
        return torch.zeros(0, dtype=torch.int64, device=chances.device)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


def row_argmax(values: Tensor, mask: Tensor) -> Tensor:
    """(Q,) column of the largest entry in the mask, the first among equals; any column for an empty row."""
    return values.masked_fill(~mask, -torch.inf).argmax(1)


def row_argmin(values: Tensor, mask: Tensor) -> Tensor:
    """(Q,) column of the smallest entry in the mask, the first among equals; any column for an empty row."""
    return values.masked_fill(~mask, torch.inf).argmin(1)


def hardest_entries(losses: Tensor, mask: Tensor, number: int) -> Tensor:
    """Indices into the flattened matrix of the `number` largest losses above zero in a mask."""
    places = flatnonzero(mask & (losses > 0))
    if len(places) <= number:
        return places
    return places[losses.reshape(-1)[places].topk(number).indices]
