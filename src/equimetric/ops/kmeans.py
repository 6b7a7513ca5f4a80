"""k-means inside each class, and the groups of a batch."""

import torch
from torch import Tensor

from equimetric.ops.products import squared_distance

__all__ = ["cluster_classes", "group_rows", "kmeans"]


@torch.no_grad()
def cluster_classes(
    embeddings: Tensor, labels: Tensor, clusters: int, *, sweeps: int = 50, generator: torch.Generator | None = None
) -> Tensor:
    """(N,) the cluster of each sample among those of its class: k-means++ and at most `sweeps` sweeps of Lloyd's.

    Draws from torch's global generator unless given another. A class of fewer samples has as many clusters as samples.
    """
    assigned = torch.zeros_like(labels)
    for label in torch.unique(labels):
        members = (labels == label).nonzero()[:, 0]
        assigned[members] = kmeans(embeddings[members], min(clusters, len(members)), sweeps, generator)
    return assigned


def kmeans(points: Tensor, clusters: int, sweeps: int, generator: torch.Generator | None = None) -> Tensor:
    """(N,) the nearest of `clusters` centres; a centre that loses all its points stays where it is."""
    centres = points[torch.randint(len(points), (1,), generator=generator)]
    while len(centres) < clusters:
        distance = squared_distance(points, centres).amin(1).clamp_min(0)
        # Where all points lie on centres already, any of them will do.
        chances = distance if distance.any() else torch.ones_like(distance)
        centres = torch.cat([centres, points[torch.multinomial(chances, 1, generator=generator)]])
    nearest = squared_distance(points, centres).argmin(1)
    for _ in range(sweeps):
        member = (nearest[None, :] == torch.arange(clusters, device=points.device)[:, None]).to(points)
        sizes = member.sum(1, keepdim=True)
        centres = torch.where(sizes > 0, member @ points / sizes.clamp_min(1), centres)
        before, nearest = nearest, squared_distance(points, centres).argmin(1)
        if torch.equal(before, nearest):
            break
    return nearest


def group_rows(*keys: Tensor) -> tuple[Tensor, int]:
    """(B,) the group of each row, rows with equal keys being one group, and the number of groups, empty ones included.

    Where shapes cannot depend on data, as in a compiled graph, there are B groups: a group has the number of its first
    row.
    """
    both = torch.stack(keys, 1)
    if torch.compiler.is_compiling():
        together = (both[:, None] == both).all(2)
        return together.view(torch.uint8).argmax(1), len(both)
    groups, group = torch.unique(both, dim=0, return_inverse=True)
    return group, len(groups)
