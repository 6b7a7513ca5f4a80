"""Batches of a cluster and its nearest clusters of other classes, for the magnet loss."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equimetric.batches.base import draw_samples, require_at_least
from equimetric.batches.groups import Groups
from equimetric.batches.mined import MinedBatches, nearest_neighbours
from equimetric.batches.registry import batches
from equimetric.errors import EquimetricError
from equimetric.ops.kmeans import cluster_within_classes

__all__ = ["ClusterBatches", "cluster_weights"]

MIN_RELATIVE_WEIGHT = 0.01
"""Smallest weight over the mean weight: a cluster without loss is still drawn at times, as its loss may have grown."""


@batches("clusters")
class ClusterBatches(MinedBatches):
    """Batches of a cluster and its nearest clusters of other classes, its impostors (Rippel et al. 2016).

    The first cluster is drawn in proportion to the mean weight of its samples, uniformly while no weight is known; the
    other `clusters_per_batch` − 1 are those of other classes whose centres are nearest to it. Each contributes
    `samples_per_cluster` random samples. Rows are grouped by cluster, the first cluster first.

    `set_groups` gives the clusters and weights; the magnet loss gives its own clusters and the last loss of each
    sample. Without groups, `refresh` finds `clusters_per_class` clusters in each class by k-means.
    """

    def __init__(
        self,
        labels: Tensor,
        *,
        clusters_per_batch: int,
        samples_per_cluster: int,
        clusters_per_class: int = 3,
        batches: int | None = None,
        seed: int = 0,
    ) -> None:
        require_at_least(
            1,
            clusters_per_batch=clusters_per_batch,
            samples_per_cluster=samples_per_cluster,
            clusters_per_class=clusters_per_class,
        )
        super().__init__(
            labels,
            units_per_batch=clusters_per_batch,
            samples_per_unit=samples_per_cluster,
            batches=batches,
            seed=seed,
        )
        self.clusters_per_class = clusters_per_class
        self.class_of = torch.unique(self.labels, return_inverse=True)[1]
        self.groups: Groups | None = None
        # There can be no more clusters than samples.
        self.require_impostors(self.class_of, "samples")

    @classmethod
    def shape_options(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """As many clusters as C×M batches would have classes."""
        return {"clusters_per_batch": classes, "samples_per_cluster": samples}

    def require_impostors(self, class_of: Tensor, unit: str) -> None:
        """Raise an error for batches of more clusters than one of any class plus all of other classes."""
        max_clusters = 1 + len(class_of) - int(class_of.bincount().max())
        if self.units_per_batch > max_clusters:
            raise EquimetricError(
                f"a batch of {self.units_per_batch} clusters, all but the first of other classes than its own, cannot "
                f"be drawn from {len(class_of)} {unit}; set the clusters per batch to {max_clusters} or fewer"
            )

    def set_groups(self, groups: Groups | None) -> None:
        """Draw by these clusters and weights from the next `refresh` on."""
        if groups is not None and len(groups) != len(self.labels):
            raise EquimetricError(
                f"got the clusters of {len(groups)} samples, but batches are drawn from {len(self.labels)}; "
                "give the cluster of every sample, −1 to leave one out"
            )
        self.groups = groups

    def mine(self, embeddings: Tensor) -> dict[str, Tensor]:
        """Cluster of each sample, numbered over all classes (−1: left out); impostors and weight of each cluster."""
        within_class, weight = self.clusters_and_weights(embeddings)
        kept = (within_class >= 0).nonzero()[:, 0]
        if not len(kept):
            raise EquimetricError("every sample has cluster −1; leave at least one cluster to draw from")
        pairs = torch.stack([self.class_of, within_class])[:, kept]
        distinct, row_cluster = torch.unique(pairs, dim=1, return_inverse=True)
        class_of_cluster = distinct[0]
        self.require_impostors(class_of_cluster, "clusters")
        sizes = row_cluster.bincount().to(embeddings)
        centres = embeddings.new_zeros(len(sizes), embeddings.shape[1]).index_add(0, row_cluster, embeddings[kept])
        centres /= sizes[:, None]
        squared_norms = centres.square().sum(1)
        nearest = nearest_neighbours(centres, squared_norms, self.units_per_batch - 1, class_of_cluster)
        cluster = torch.full_like(within_class, -1).index_copy(0, kept, row_cluster)
        return {"cluster": cluster, "nearest": nearest, "weights": cluster_weights(row_cluster, weight[kept])}

    def clusters_and_weights(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) cluster of each sample within its class and (N,) its weight: of the groups, or by k-means."""
        unknown = torch.full(self.labels.shape, -1.0)
        if self.groups is None:
            generator = self.generator("clusters")
            clusters = cluster_within_classes(embeddings, self.class_of, self.clusters_per_class, generator=generator)
            return clusters, unknown
        weight = unknown if self.groups.weight is None else self.groups.weight.detach().cpu()
        return self.groups.cluster.detach().cpu().long(), weight

    def units(self, index: int) -> Tensor:
        """(clusters, samples) indices, a cluster in each row."""
        generator = self.batch_generator(index)
        first = int(torch.multinomial(self.get_mined("weights"), 1, generator=generator))
        cluster = self.get_mined("cluster")
        chosen = [first, *self.get_mined("nearest")[first].tolist()]
        members = [(cluster == c).nonzero()[:, 0] for c in chosen]
        return torch.stack([draw_samples(rows, self.samples_per_unit, generator) for rows in members])


def cluster_weights(cluster: Tensor, weight: Tensor) -> Tensor:
    """(clusters,) mean weight of the samples of each cluster, from the (N,) cluster and weight of each sample.

    A weight below 0 is unknown. A cluster without known weights gets the average of the others; where no cluster has a
    weight above 0, all are equal. None gets less than a hundredth of the average.
    """
    is_known = weight >= 0
    clusters = int(cluster.max()) + 1
    counts = cluster[is_known].bincount(minlength=clusters)
    total = torch.zeros(clusters, dtype=torch.float64).index_add(0, cluster[is_known], weight[is_known].double())
    mean = total / counts.clamp_min(1)
    average = float(mean.sum() / (counts > 0).sum().clamp_min(1))
    if average == 0:
        return torch.ones_like(mean)
    return torch.where(counts > 0, mean, average).clamp_min(MIN_RELATIVE_WEIGHT * average)
