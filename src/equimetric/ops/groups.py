"""Rows of a batch that belong together."""

import torch
from torch import Tensor

__all__ = ["group_rows"]


def group_rows(*keys: Tensor) -> tuple[Tensor, int]:
    """(B,) the group of each row, rows with equal keys being one group, and the number of groups, empty ones included.

    Where shapes cannot depend on data, as in a compiled graph, there are B groups: a group has the number of its first
    row.
    """
    key_rows = torch.stack(keys, 1)
    if torch.compiler.is_compiling():
        equal = (key_rows[:, None] == key_rows).all(2)
        return equal.view(torch.uint8).argmax(1), len(key_rows)
    groups, group = torch.unique(key_rows, dim=0, return_inverse=True)
    return group, len(groups)
