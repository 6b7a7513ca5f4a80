"""k-means inside each class of a labelled set."""

import torch
from torch import Tensor

from equimetric.geometry import squared_distance

__all__ = ["cluster_classes", "kmeans"]


@torch.no_grad()
def cluster_classes(
    embeddings: Tensor, labels: Tensor, clusters: int, *, sweeps: int = 50, generator: torch.Generator | None = None
) -> Tensor:
    """(N,) cluster of each sample within its class, numbered from 0 in every class.

    k-means++ and at most `sweeps` Lloyd iterations per class, with torch's global generator unless another is given.
    A class with fewer samples than `clusters` has one cluster per sample.
    """
    assigned = torch.zeros_like(labels)
    for label in torch.unique(labels):
        members = (labels == label).nonzero()[:, 0]
        assigned[members] = kmeans(embeddings[members], min(clusters, len(members)), sweeps, generator)
    return assigned


def kmeans(points: Tensor, clusters: int, sweeps: int = 50, generator: torch.Generator | None = None) -> Tensor:
    """(n,) nearest of `clusters` centres for each point; a centre that loses all its points stays in place."""
    centres = points[torch.randint(len(points), (1,), generator=generator)]
    while len(centres) < clusters:
        distance = squared_distance(points, centres).amin(1).clamp_min(0)
        # Where every point coincides with a centre, any point will do.
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
