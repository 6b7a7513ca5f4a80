"""Magnet loss: samples are attracted by their cluster and repelled by near clusters of other classes."""

import torch
from torch import Tensor, nn

from equimetric.errors import EquimetricError
from equimetric.geometry import squared_distance
from equimetric.losses.preconditions import known_queries, whole_batch
from equimetric.pairs import Pairs
from equimetric.reductions import log_sum_exp, mean_rows
from equimetric.registry import loss
from equimetric.search_space import Uniform

__all__ = ["Magnet"]

SMALLEST_VARIANCE = 1e-12
"""Keeps the exponents finite where every sample sits on its cluster's mean."""


@loss(
    "magnet",
    title="Magnet",
    family="clustering",
    paper="Rippel, Paluri, Dollár, Bourdev: Metric learning with adaptive density discrimination (2016)",
    geometry="sqeuclidean",
    references="batch",
    normalize=False,
    search={"alpha": Uniform(0.0, 10.0)},
    not_monotone="compares samples with cluster means, not with one another",
)
class Magnet(nn.Module):
    """Several clusters per class; a sample must be nearer to its own than to those of other classes.

    L = mean_r [ ‖r − μ(r)‖²/2σ² + α + log Σ_{m: class(m) ≠ class(r)} e^{−‖r − μ_m‖²/2σ²} ]₊, on raw embeddings;
    μ_m is the mean of the batch's samples of cluster m, σ² = Σ_r ‖r − μ(r)‖² / (B − 1).
    Every class is one cluster unless clusters are set: with `images`, the size of the training set, `set_clusters`
    takes the cluster of every image (from k-means in each class, say, anew every epoch), and the objective is called
    with `index=…`. They are part of the state.
    """

    clusters: Tensor | None

    def __init__(self, *, alpha: float = 1.0, images: int | None = None) -> None:
        super().__init__()
        self.alpha = alpha
        self.register_buffer("clusters", None if images is None else torch.zeros(images, dtype=torch.int64))

    def set_clusters(self, clusters: Tensor) -> None:
        """Take (images,) the cluster of every image, numbered as one likes inside each class."""
        if self.clusters is None or clusters.shape != self.clusters.shape:
            expected = "none; give images=…" if self.clusters is None else str(len(self.clusters))
            raise EquimetricError(
                f"got clusters of shape {tuple(clusters.shape)}, but magnet keeps those of {expected}"
            )
        self.clusters.copy_(clusters)

    def same_cluster(self, pairs: Pairs, same_class: Tensor) -> Tensor:
        """(B, B) bool, which samples share a cluster."""
        if self.clusters is None:
            return same_class
        index = known_queries(pairs, "magnet").index
        if index is None or (len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(self.clusters)):
            raise EquimetricError(
                f"magnet keeps the clusters of {len(self.clusters)} images; "
                "it needs index=… with every sample's place among them"
            )
        cluster = self.clusters[index]
        return same_class & (cluster[:, None] == cluster[None, :])

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        embeddings, labels = whole_batch(pairs, "magnet")
        same_class = labels[:, None] == labels[None, :]
        same_cluster = self.same_cluster(pairs, same_class).to(embeddings.dtype)
        share = 1 / same_cluster.sum(0, keepdim=True)
        means = (same_cluster * share) @ embeddings
        own = (embeddings - means).square().sum(1)
        variance = (own.sum() / max(1, len(embeddings) - 1)).clamp_min(SMALLEST_VARIANCE)
        # Column j is the cluster of sample j; as every sample of the cluster brings it, each counts a share.
        distance = squared_distance(embeddings, means)
        repelled = log_sum_exp(-distance / (2 * variance), ~same_class, share.expand_as(distance))
        return mean_rows((own / (2 * variance) + self.alpha + repelled).relu())
