"""Choose entries of a similarity matrix: at random, or the largest."""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from equimetric.ops.masks import flatnonzero

__all__ = ["GumbelNoise", "draw_columns", "hardest_entries", "row_argmax", "row_argmin"]


MIN_POOL_SIZE, REUSE = 2**15, 128
"""Above this many random numbers, each drawn number is used about `REUSE` times."""


def draw_columns(chances: Tensor, generator: torch.Generator | None) -> Tensor:
    """(T,) one column of each row of (T, R) `chances`, in proportion to them, from torch's global generator if None.

    Every row needs a chance above zero.
    """
    if not len(chances):
        return torch.zeros(0, dtype=torch.int64, device=chances.device)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


class GumbelNoise(NamedTuple):
    """(T, M) random numbers of Gumbel's distribution.

    Drawing is far slower than what is computed with the numbers, so for large T · M the rows are overlapping windows of
    one long random sequence, each from a random offset: inside a row all numbers are independent, and two rows hardly
    ever have the same number in the same column.
    """

    windows: Tensor
    """(L, M) overlapping windows of the sequence."""
    window: Tensor
    """(T,) the window of each row of noise."""

    @classmethod
    def draw(cls, shape: tuple[int, int], like: Tensor, generator: torch.Generator | None) -> Self:
        """Draw noise of the dtype and on the device of a tensor."""
        rows, columns = shape
        if rows * columns <= MIN_POOL_SIZE:
            noise = -like.new_empty(shape).exponential_(generator=generator).log()
            return cls(noise, torch.arange(rows, device=like.device))
        num_windows = max(MIN_POOL_SIZE, rows * columns // REUSE)
        sequence = like.new_empty(num_windows + columns - 1).exponential_(generator=generator).log_().neg_()
        window = torch.randint(num_windows, (rows,), generator=generator, device=like.device)
        return cls(sequence.unfold(0, columns, 1), window)

    def rows(self, part: slice, out: Tensor | None = None) -> Tensor:
        """(P, M) noise of some of the T rows."""
        return torch.index_select(self.windows, 0, self.window[part], out=out)


def row_argmax(values: Tensor, mask: Tensor) -> Tensor:
    """(Q,) column of the largest entry in the mask, the first among equals; any column for an empty row."""
    return values.masked_fill(~mask, -torch.inf).argmax(1)


def row_argmin(values: Tensor, mask: Tensor) -> Tensor:
    """(Q,) column of the smallest entry in the mask, the first among equals; any column for an empty row."""
    return values.masked_fill(~mask, torch.inf).argmin(1)


def hardest_entries(losses: Tensor, counts: Tensor, k: float) -> tuple[Tensor, Tensor]:
    """The `k` largest losses above zero, each present as often as `counts` (or a mask) says.

    Returns their indices into the flattened matrix, and how often each is among them.
    """
    indices = flatnonzero((counts > 0) & (losses > 0))
    hardness = losses.reshape(-1)[indices]
    if counts.dtype == torch.bool:
        if len(indices) > k:
            indices = indices[hardness.topk(int(k)).indices]
        return indices, losses.new_ones(len(indices))
    order = hardness.argsort(descending=True)
    indices = indices[order]
    available = counts.reshape(-1)[indices].to(losses)
    taken = (k - (available.cumsum(0) - available)).clamp_min(0).minimum(available)
    return indices[taken > 0], taken[taken > 0]
