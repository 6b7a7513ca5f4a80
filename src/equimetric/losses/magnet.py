"""Magnet loss: samples are attracted by their cluster and repelled by near clusters of other classes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.option_values import PositiveInt
from equimetric.pairs import Pairs
from equimetric.search_space import Integer, Uniform

MIN_VARIANCE = 1e-12
"""Keeps the exponents finite where every sample sits on its cluster's mean."""

UNKNOWN = -1.0
"""Stands for the loss of an image that no batch has held yet."""


@loss(
    "magnet",
    title="Magnet",
    family="clustering",
    per_query=True,
    paper="Rippel, Paluri, Dollár, Bourdev: Metric learning with adaptive density discrimination (2016)",
    geometry="none",
    references="batch",
    takes="batch",
    search={"alpha": Uniform(0.0, 10.0), "clusters_per_class": Integer(3, 8)},
    exempt={
        "monotone": "compares samples with cluster means, not with one another",
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
    },
)
class Magnet(nn.Module):
    """Several clusters per class; a sample must be nearer to its own than to those of other classes.

    L = mean_r [ ‖r − μ(r)‖²/2σ² + α + log Σ_{m: class(m) ≠ class(r)} e^{−‖r − μ_m‖²/2σ²} ]₊, on raw embeddings;
    μ_m is the mean of the batch's samples of cluster m, σ² = Σ_r ‖r − μ(r)‖² / (B − 1), all by the weights of samples.
    Every class is one cluster unless clusters are set: with `images`, the size of the training set, `set_clusters`
    takes the cluster of every image, and the objective is called with `index=…`. The clusters are part of the state,
    and so is the last training loss of each image. In training runs, k-means with `clusters_per_class` centres in each
    class renews the clusters every epoch, and batches of kind 'clusters' are drawn by them and by these losses.
    """

    clusters: Tensor | None
    recorded: Tensor | None

    def __init__(
        self, *, alpha: float = 1.0, images: PositiveInt | None = None, clusters_per_class: PositiveInt = 3
    ) -> None:
        super().__init__()
        if clusters_per_class < 1:
            raise EquimetricError(f"every class has at least one cluster, got clusters_per_class={clusters_per_class}")
        self.alpha = alpha
        self.clusters_per_class = clusters_per_class
        self.register_buffer("clusters", None if images is None else torch.zeros(images, dtype=torch.int64))
        self.register_buffer("recorded", None if images is None else torch.full((images,), UNKNOWN))

    def set_clusters(self, clusters: Tensor) -> None:
        """Set (images,) the cluster of every image, in any numbering inside each class."""
        if self.clusters is None or clusters.shape != self.clusters.shape:
            expected = "none; give images=…" if self.clusters is None else str(len(self.clusters))
            raise EquimetricError(
                f"got clusters of shape {tuple(clusters.shape)}, but magnet keeps those of {expected}"
            )
        self.clusters.copy_(clusters)

    def on_epoch(self, embeddings: Callable[[], Tensor], labels: Tensor) -> None:
        """Renew the clusters from the embeddings of the training set, where clusters are kept."""
        if self.clusters is not None:
            self.set_clusters(ops.special.cluster_within_classes(embeddings(), labels, self.clusters_per_class))

    def row_groups(self) -> tuple[Tensor, Tensor] | None:
        """(images,) clusters and (images,) last losses, below 0 where unknown; None where clusters are not kept."""
        return None if self.clusters is None or self.recorded is None else (self.clusters, self.recorded)

    def record(self, index: Tensor, values: Tensor) -> None:
        """Keep the (B,) losses of these images; of an image that occurs twice, the larger."""
        if self.recorded is not None:
            self.recorded[index] = 0
            self.recorded.scatter_reduce_(0, index, values.detach().to(self.recorded), "amax")

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of a batch."""
        if self.clusters is None:
            return ops.mean(self.sample_losses(pairs, None))
        index = ops.require.rows_of_training_set(pairs, "magnet", images=len(self.clusters))
        values = self.sample_losses(pairs, self.clusters[index])
        if self.training:
            present = slice(None) if pairs.query_weight is None else pairs.query_weight > 0
            self.record(index[present], values[present])
        return ops.mean(values)

    def sample_losses(self, pairs: Pairs, cluster: Tensor | None) -> Tensor:
        """(B,) the loss of each sample; samples of a class with the same `cluster`, or of a class, are a cluster."""
        embeddings, labels = ops.require.whole_batch(pairs, "magnet")
        column, num_clusters = ops.special.group_rows(*([labels] if cluster is None else [labels, cluster]))
        counts = torch.ones_like(embeddings[:, 0]) if pairs.query_weight is None else pairs.query_weight.to(embeddings)
        sizes = embeddings.new_zeros(num_clusters).index_add(0, column, counts)
        sums = embeddings.new_zeros(num_clusters, embeddings.shape[1]).index_add(
            0, column, counts[:, None] * embeddings
        )
        means = ops.divide(sums, sizes[:, None])
        squared_deviation = (embeddings - means.index_select(0, column)).square().sum(1)
        variance = (torch.dot(counts, squared_deviation) / (counts.sum() - 1).clamp_min(1)).clamp_min(MIN_VARIANCE)
        other_class = labels[:, None] != labels.new_zeros(num_clusters).scatter(0, column, labels)
        distance = ops.special.squared_distance(embeddings, means)
        repulsion = ops.log_sum_exp(distance * (-0.5 / variance), other_class & (sizes > 0))
        return (squared_deviation / (2 * variance) + self.alpha + repulsion).relu()
