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


def hardest_entries(losses: Tensor, times: Tensor, number: float) -> tuple[Tensor, Tensor]:
    """The `number` largest losses above zero, each present as often as `times` (or a mask) says.

    Returns their indices into the flattened matrix, and how often each is among them.
    """
    places = flatnonzero((times > 0) & (losses > 0))
    hardness = losses.reshape(-1)[places]
    if times.dtype == torch.bool:
        if len(places) > number:
            places = places[hardness.topk(int(number)).indices]
        return places, losses.new_ones(len(places))
    order = hardness.argsort(descending=True)
    places = places[order]
    counts = times.reshape(-1)[places].to(losses)
    kept = (number - (counts.cumsum(0) - counts)).clamp_min(0).minimum(counts)
    return places[kept > 0], kept[kept > 0]
