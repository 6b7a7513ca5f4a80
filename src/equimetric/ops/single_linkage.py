"""Single-linkage distances."""

import torch
from torch import Tensor

__all__ = ["single_linkage_distance"]


def single_linkage_distance(distance: Tensor) -> Tensor:
    """(C, C) the smallest d such that steps no wider than d lead from one class to the other; 0 to itself.

    Grows a minimum spanning tree: the path to a class that joins goes through the class it is nearest to.
    """
    gaps = torch.zeros_like(distance)
    gap_to_tree = distance[0].clone()
    nearest = torch.zeros(len(distance), dtype=torch.int64, device=distance.device)
    inside = nearest == -1
    inside[0] = True
    for _ in range(1, len(distance)):
        new = int(gap_to_tree.masked_fill(inside, torch.inf).argmin())
        path = torch.maximum(gaps[nearest[new]], gap_to_tree[new])
        gaps[new] = torch.where(inside, path, 0)
        gaps[:, new] = gaps[new]
        inside[new] = True
        closer = distance[new] < gap_to_tree
        gap_to_tree, nearest = torch.where(closer, distance[new], gap_to_tree), torch.where(closer, new, nearest)
    return gaps
