"""The largest entries of rows: of whole rows, or of rows that come some columns at a time."""

import torch
from torch import Tensor

__all__ = ["TopEntries", "first_k", "top_entries"]

GROUP = 16
"""Columns of which the maximum is read first: most groups hold nothing larger than the entries a row keeps."""


def top_entries(similarity: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Values and columns of the `width` largest entries of each row, falling; like `topk`, in fewer passes.

    Columns form groups of a few. The `width` groups with the largest maxima hold the `width` largest entries; of the
    other groups only the maximum is read.
    """
    items = similarity.shape[1]
    size = GROUP if items >= 256 * width else 8
    groups = items // size
    if groups < 2 * width:
        return similarity.topk(width, dim=1)
    grouped = similarity[:, : groups * size].view(-1, size, groups)
    top_groups = grouped.amax(dim=1).topk(width, dim=1, sorted=False).indices
    candidates = grouped.gather(2, top_groups[:, None, :].expand(-1, size, -1)).flatten(1)
    rest = similarity[:, groups * size :]
    values, indices = torch.cat([candidates, rest], dim=1).topk(width, dim=1)
    in_group = indices < candidates.shape[1]
    in_groups = indices // width * groups + top_groups.gather(1, indices % width)
    return values, torch.where(in_group, in_groups, indices - candidates.shape[1] + groups * size)


def first_k(similarity: Tensor, k: int) -> Tensor:
    """Indices of the k largest entries of each row; ties by lower index, also across the k-th rank."""
    kth_value = similarity.topk(k, dim=1).values[:, -1:]
    above, tied = similarity > kth_value, similarity == kth_value
    free_slots = k - above.sum(dim=1, keepdim=True)
    chosen = above | (tied & (tied.cumsum(dim=1, dtype=torch.int32) <= free_slots))
    columns = chosen.nonzero()[:, 1].view(-1, k)
    # Columns ascend, and a stable sort keeps that among equal values.
    return columns.gather(1, similarity.gather(1, columns).argsort(dim=1, descending=True, stable=True))


class TopEntries:
    """The `width` largest entries of N rows and their indices, falling, out of blocks of columns that come one by one.

    Which of equal entries are kept is not defined, unless they are `stable`: then blocks must come in the order of
    their columns, and ties go to the lower index. Rows without enough entries end in −∞ at index 0.
    """

    def __init__(
        self, rows: int, width: int, dtype: torch.dtype, device: torch.device, *, stable: bool = False
    ) -> None:
        self.width, self.stable = width, stable
        self.values = torch.full((rows, width), -torch.inf, dtype=dtype, device=device)
        self.indices = torch.zeros(rows, width, dtype=torch.int64, device=device)

    def take(self, similarity: Tensor, first_index: int, rows: slice = slice(None)) -> None:
        """Read a block (B, K) of some rows, whose columns begin at `first_index`."""
        if int((self.values[rows, -1] == -torch.inf).sum()) * GROUP > len(similarity):
            # Many rows have nothing to compare with yet.
            width = min(self.width, similarity.shape[1])
            columns = first_k(similarity, width) if self.stable else top_entries(similarity, width)[1]
            self.merge(rows, similarity.gather(1, columns), columns + first_index)
            return
        grouped = similarity.shape[1] // GROUP * GROUP
        self._take_above(similarity[:, :grouped].view(len(similarity), GROUP, -1), first_index, rows)
        self._take_above(similarity[:, None, grouped:], first_index + grouped, rows)

    def _take_above(self, grouped: Tensor, first_index: int, rows: slice) -> None:
        """Merge entries of (B, size, groups) that are above the smallest kept one of their row."""
        min_kept = self.values[rows, -1]
        row, group = (grouped.amax(dim=1) > min_kept[:, None]).nonzero(as_tuple=True)
        values = grouped[row, :, group]
        entry, member = (values > min_kept[row, None]).nonzero(as_tuple=True)
        row, values = row[entry], values[entry, member]
        indices = first_index + member * grouped.shape[2] + group[entry]
        if self.stable:
            order = indices.argsort(stable=True)
            order = order[row[order].argsort(stable=True)]
            row, values, indices = row[order], values[order], indices[order]
        self.merge_list(row + (rows.start or 0), values, indices)

    def merge_list(self, row: Tensor, values: Tensor, indices: Tensor) -> None:
        """Merge a list of entries, sorted by row."""
        if not len(row):
            return
        affected, line, counts = torch.unique_consecutive(row, return_inverse=True, return_counts=True)
        within = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[line]
        shape = len(affected), int(counts.max())
        new_values = torch.full(shape, -torch.inf, dtype=values.dtype, device=values.device)
        new_indices = torch.zeros(shape, dtype=torch.int64, device=values.device)
        new_values[line, within] = values
        new_indices[line, within] = indices
        self.merge(affected, new_values, new_indices)

    def merge(self, rows: slice | Tensor, values: Tensor, indices: Tensor) -> None:
        """Merge further entries (B, k) of some rows."""
        values, indices = torch.cat([self.values[rows], values], dim=1), torch.cat([self.indices[rows], indices], dim=1)
        if self.stable:
            top = first_k(values, self.width)
            self.values[rows] = values.gather(1, top)
        else:
            self.values[rows], top = values.topk(self.width, dim=1)
        self.indices[rows] = indices.gather(1, top)
