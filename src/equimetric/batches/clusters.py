"""Batches of a cluster and the clusters of other classes next to it, for the magnet loss."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equimetric.batches.base import draw_samples, require_at_least
from equimetric.batches.mined import MinedBatches, nearest_others
from equimetric.errors import EquimetricError
from equimetric.ops.kmeans import cluster_classes

__all__ = ["ClusterBatches", "cluster_weights"]

LEAST_SHARE = 0.01
"""Of the mean weight: a cluster without loss is still drawn now and then, as its loss may have grown since."""


class ClusterBatches(MinedBatches):
    """Batches of a cluster and its nearest clusters of other classes, its impostors (Rippel et al. 2016).

    The first cluster is drawn in proportion to the mean loss that its samples last had, uniformly as long as none is
    known; the other `clusters_per_batch` − 1 are those of other classes whose centres are nearest to it. Of each come
    `samples_per_cluster` random samples. Rows are grouped by cluster, the first cluster first.

    Clusters and losses are those that `take_clustering` was given, in training those of the magnet loss with clusters;
    where no loss keeps any, `refresh` finds `clusters_per_class` in each class by k-means.
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
        self.clustering: tuple[Tensor, Tensor] | None = None
        # Whatever the clusters will be, there are no more of them than samples.
        self.require_impostors(self.class_of, "samples")

    @classmethod
    def sized(cls, classes: int, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """As many clusters as C×M batches would have classes."""
        return {"clusters_per_batch": classes, "samples_per_cluster": samples}

    def require_impostors(self, class_of: Tensor, what: str) -> None:
        """Refuse batches of more clusters than a class has with those of all other classes."""
        most = 1 + len(class_of) - int(class_of.bincount().max())
        if self.units_per_batch > most:
            raise EquimetricError(
                f"a batch of {self.units_per_batch} clusters, all but the first of other classes than its own, cannot "
                f"be drawn from {len(class_of)} {what}; set the clusters per batch to {most} or fewer"
            )

    def take_clustering(self, clustering: tuple[Tensor, Tensor] | None) -> None:
        """Go by these clusters and losses from the next `refresh` on."""
        if clustering is not None and any(one.shape != self.labels.shape for one in clustering):
            clusters, losses = clustering
            raise EquimetricError(
                f"got the clusters of {len(clusters)} samples and the losses of {len(losses)}, "
                f"but the batches are drawn from {len(self.labels)}; give those of all"
            )
        self.clustering = clustering

    def mine(self, embeddings: Tensor) -> dict[str, Tensor]:
        """The cluster of each sample, numbered over all classes; the nearest impostors and the weight of each."""
        if self.clustering is None:
            generator = self.generator("clusters")
            inside = cluster_classes(embeddings, self.class_of, self.clusters_per_class, generator=generator)
            losses = torch.full(inside.shape, -1.0)
        else:
            inside, losses = (one.detach().cpu() for one in self.clustering)
        distinct, cluster = torch.unique(torch.stack([self.class_of, inside]), dim=1, return_inverse=True)
        class_of_cluster = distinct[0]
        self.require_impostors(class_of_cluster, "clusters")
        number = cluster.bincount().to(embeddings)
        centres = embeddings.new_zeros(len(number), embeddings.shape[1]).index_add(0, cluster, embeddings)
        centres /= number[:, None]
        squares = centres.square().sum(1)
        nearest = nearest_others(centres, squares, self.units_per_batch - 1, class_of_cluster)
        return {"cluster": cluster, "nearest": nearest, "weights": cluster_weights(cluster, losses)}

    def units(self, number: int) -> Tensor:
        """(clusters, samples) indices, a cluster in each row."""
        generator = self.batch_generator(number)
        first = int(torch.multinomial(self.found("weights"), 1, generator=generator))
        cluster = self.found("cluster")
        chosen = [first, *self.found("nearest")[first].tolist()]
        members = [(cluster == one).nonzero()[:, 0] for one in chosen]
        return torch.stack([draw_samples(own, self.samples_per_unit, generator) for own in members])


def cluster_weights(cluster: Tensor, losses: Tensor) -> Tensor:
    """(clusters,) the mean loss of the samples of each cluster, of (N,) samples' clusters and losses.

    Samples with a loss below 0 have none yet. A cluster of such samples weighs what the others do on average; where
    no cluster has a loss above 0 all weigh alike. None weighs less than a hundredth of the average.
    """
    known = losses >= 0
    clusters = int(cluster.max()) + 1
    number = cluster[known].bincount(minlength=clusters)
    total = torch.zeros(clusters, dtype=torch.float64).index_add(0, cluster[known], losses[known].double())
    mean = total / number.clamp_min(1)
    average = float(mean.sum() / (number > 0).sum().clamp_min(1))
    if average == 0:
        return torch.ones_like(mean)
    return torch.where(number > 0, mean, average).clamp_min(LEAST_SHARE * average)
