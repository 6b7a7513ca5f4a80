"""What the random selections share: drawing one column per row, and knowing which column is the query itself."""

import torch
from torch import Tensor

from equimetric.ops.masks import to_dtype
from equimetric.pairs import Pairs

__all__ = ["chances", "draw_columns", "own_column"]


def chances(pairs: Pairs, mask: Tensor) -> Tensor:
    """(Q, R) how likely each entry of a mask is to be drawn: as often as it is present."""
    inside = to_dtype(mask, pairs.similarity.dtype)
    return inside if pairs.weight is None else inside * pairs.weight


def draw_columns(shares: Tensor, generator: torch.Generator | None) -> Tensor:
    """(T,) one column of each row of (T, R) `shares`, in proportion to them, from torch's global generator if None.

    Every row needs a share above zero.
    """
    if not len(shares):
        return torch.zeros(0, dtype=torch.int64, device=shares.device)
    return torch.multinomial(shares, 1, generator=generator)[:, 0]


def own_column(pairs: Pairs) -> Tensor:
    """(Q, R) bool: the column that is the query itself; an empty row where the query is not among the references.

    It is the only column that is present and yet neither positive nor negative.
    """
    neither = ~pairs.any
    if pairs.weight is not None:
        neither = neither & (pairs.weight > 0)
    return neither & (neither.sum(1, keepdim=True) == 1)
