"""Magnet loss: samples are attracted by their cluster and repelled by near clusters of other classes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.geometry import squared_distance
from equimetric.losses.preconditions import known_queries, whole_batch
from equimetric.ops.kmeans import cluster_classes
from equimetric.ops.reductions import log_sum_exp, mean_rows
from equimetric.option_values import Count
from equimetric.pairs import Pairs
from equimetric.search_space import Integer, Uniform

__all__ = ["Magnet"]

SMALLEST_VARIANCE = 1e-12
"""Keeps the exponents finite where every sample sits on its cluster's mean."""

UNSEEN = -1.0
"""Stands for the loss of an image that no batch has held yet."""


@loss(
    "magnet",
    title="Magnet",
    family="clustering",
    paper="Rippel, Paluri, Dollár, Bourdev: Metric learning with adaptive density discrimination (2016)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"alpha": Uniform(0.0, 10.0), "clusters_per_class": Integer(3, 8)},
    not_monotone="compares samples with cluster means, not with one another",
)
class Magnet(nn.Module):
    """Several clusters per class; a sample must be nearer to its own than to those of other classes.

    L = mean_r [ ‖r − μ(r)‖²/2σ² + α + log Σ_{m: class(m) ≠ class(r)} e^{−‖r − μ_m‖²/2σ²} ]₊, on raw embeddings;
    μ_m is the mean of the batch's samples of cluster m, σ² = Σ_r ‖r − μ(r)‖² / (B − 1).
    Every class is one cluster unless clusters are set: with `images`, the size of the training set, `set_clusters`
    takes the cluster of every image, and the objective is called with `index=…`. They are part of the state, and so is
    the loss that each image last had in training. In training runs clusters come from k-means with `clusters_per_class`
    centres in each class, anew every epoch, and batches of kind 'clusters' are drawn by them and by these losses.
    """

    clusters: Tensor | None
    recorded: Tensor | None

    def __init__(self, *, alpha: float = 1.0, images: Count | None = None, clusters_per_class: Count = 3) -> None:
        super().__init__()
        if clusters_per_class < 1:
            raise EquimetricError(f"every class has at least one cluster, got clusters_per_class={clusters_per_class}")
        self.alpha = alpha
        self.clusters_per_class = clusters_per_class
        self.register_buffer("clusters", None if images is None else torch.zeros(images, dtype=torch.int64))
        self.register_buffer("recorded", None if images is None else torch.full((images,), UNSEEN))

    def set_clusters(self, clusters: Tensor) -> None:
        """Take (images,) the cluster of every image, numbered as one likes inside each class."""
        if self.clusters is None or clusters.shape != self.clusters.shape:
            expected = "none; give images=…" if self.clusters is None else str(len(self.clusters))
            raise EquimetricError(
                f"got clusters of shape {tuple(clusters.shape)}, but magnet keeps those of {expected}"
            )
        self.clusters.copy_(clusters)

    def on_epoch(self, embeddings: Callable[[], Tensor], labels: Tensor) -> None:
        """Renew the clusters from the embeddings of the training set, where clusters are kept."""
        if self.clusters is not None:
            self.set_clusters(cluster_classes(embeddings(), labels, self.clusters_per_class))

    def groups(self) -> tuple[Tensor, Tensor] | None:
        """(images,) cluster and last loss of every image, where they are kept."""
        if self.clusters is None or self.recorded is None:
            return None
        return self.clusters, self.recorded

    def record(self, index: Tensor, values: Tensor) -> None:
        """Keep the (B,) losses of these images; of an image that is there twice, the larger."""
        if self.recorded is not None:
            self.recorded[index] = 0
            self.recorded.scatter_reduce_(0, index, values.detach().to(self.recorded), "amax")

    def places(self, pairs: Pairs) -> Tensor | None:
        """(B,) the samples' places among the images, where clusters are kept."""
        if self.clusters is None:
            return None
        index = known_queries(pairs, "magnet").index
        if index is None or (len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(self.clusters)):
            raise EquimetricError(
                f"magnet keeps the clusters of {len(self.clusters)} images; "
                "it needs index=… with every sample's place among them"
            )
        return index

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        index = self.places(pairs)
        values = self.values(pairs, None if index is None or self.clusters is None else self.clusters[index])
        if index is not None and self.training:
            self.record(index, values)
        return mean_rows(values)

    def values(self, pairs: Pairs, cluster: Tensor | None) -> Tensor:
        """(B,) the loss of each sample; samples of a class with the same `cluster`, or of a class, are a cluster."""
        embeddings, labels = whole_batch(pairs, "magnet")
        column, number = cluster_columns(labels, cluster)
        sizes = embeddings.new_zeros(number).index_add(0, column, torch.ones_like(embeddings[:, 0]))
        sums = embeddings.new_zeros(number, embeddings.shape[1]).index_add(0, column, embeddings)
        means = sums / sizes.clamp_min(1)[:, None]
        own = (embeddings - means.index_select(0, column)).square().sum(1)
        variance = (own.sum() / max(1, len(embeddings) - 1)).clamp_min(SMALLEST_VARIANCE)
        other_class = labels[:, None] != labels.new_zeros(number).scatter(0, column, labels)
        distance = squared_distance(embeddings, means)
        repelled = log_sum_exp(distance * (-0.5 / variance), other_class & (sizes > 0))
        return (own / (2 * variance) + self.alpha + repelled).relu()


def cluster_columns(labels: Tensor, cluster: Tensor | None) -> tuple[Tensor, int]:
    """(B,) the column of each sample's cluster, and the number of columns.

    Where shapes cannot depend on data, as when compiling, there are B of them: a cluster has that of its first sample.
    """
    both = labels[:, None] if cluster is None else torch.stack([labels, cluster], 1)
    if torch.compiler.is_compiling():
        together = (both[:, None] == both).all(2)
        return together.view(torch.uint8).argmax(1), len(labels)
    clusters, column = torch.unique(both, dim=0, return_inverse=True)
    return column, len(clusters)
