"""Clustering metrics: how well k-means, given only the number of classes, recovers the classes.

k-means runs on the vectors of the geometry; for cosine these are unit vectors, and so are the centres, unless Euclidean
means are requested. With a separate gallery the queries are clustered. Resampled classes keep the clusters that all
points formed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.mapped_vectors import load_vectors
from equimetric.evaluation.evidence import Detail, Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.metrics.partitions import (
    Contingency,
    adjusted_mutual_information,
    normalized_mutual_information,
    pairwise_f1,
)
from equimetric.evaluation.resampling.class_statistics import WEIGHT_CHUNK_SIZE, ClassStatistic, shift_to_value
from equimetric.evaluation.result import Evaluation
from equimetric.ops.blocks import moderate_scale, slices, sum_by_group
from equimetric.ops.kmeans import kmeans
from equimetric.seeding import derive_seed

__all__ = ["ClusterAssignments", "Clusters"]

STARTS, MAX_POINTS_TIMES_CLUSTERS = 10, 2**20
"""Up to this many products of points and clusters, k-means starts ten times and the best is kept."""
OPTIONS: dict[str, Any] = {
    "clustering_runs": 1,
    "clustering_seed": 0,
    "clustering_iterations": 20,
    "clustering_starts": None,
    "clustering_spherical": None,
}


@dataclass(frozen=True)
class ClusterAssignments(Detail):
    """The k-means behind the clustering metrics: `clusters` (runs, N), and how each run ended."""

    key = "clustering"

    clusters: Integers
    iterations: list[int]
    converged: list[bool]


class Clusters(Collector):
    """k-means of the queries into as many clusters as they have classes, in one run or several."""

    reads_tiles = False

    def finish(self) -> None:
        """Cluster, each run with its own seed."""
        runs = self.options["clustering_runs"]
        if runs < 1:
            raise EquimetricError(f"clustering_runs is {runs}; the clustering metrics need at least 1")
        # A canonical order of the points, so that the order of the input changes nothing.
        points = moderate_scale(load_vectors(self.sets.queries, "k-means"))
        order = _order_by_mean_product(points)
        points, classes = points[order], self.sets.query_classes[order].cpu()
        clusters = int((classes.bincount() > 0).sum())
        spherical, starts = self.options["clustering_spherical"], self.options["clustering_starts"]
        self.runs = [
            kmeans(
                points,
                clusters,
                seed=derive_seed(self.options["clustering_seed"], "run", run),
                iterations=self.options["clustering_iterations"],
                n_init=(STARTS if len(points) * clusters <= MAX_POINTS_TIMES_CLUSTERS else 1)
                if starts is None
                else starts,
                spherical=self.sets.geometry == "cosine" if spherical is None else spherical,
            )
            for run in range(runs)
        ]
        self.tables = [Contingency.from_labels(classes, run.assignment.cpu()) for run in self.runs]
        self.assignments = [torch.empty_like(run.assignment).scatter_(0, order, run.assignment) for run in self.runs]

    def detail(self) -> ClusterAssignments:
        """The clusters in the order of the input."""
        return ClusterAssignments(
            np.stack([assignment.cpu().numpy() for assignment in self.assignments]),
            [run.iterations for run in self.runs],
            [run.converged for run in self.runs],
        )


def _order_by_mean_product(points: Tensor) -> Tensor:
    """(N,) the points by their product with the mean of all, which neither order nor rotation changes."""
    mean = sum_by_group(points, torch.zeros(len(points), dtype=torch.int64, device=points.device), 1)[0]
    return torch.mv(points, mean.to(points.dtype)).argsort(stable=True)


def _mean_over_runs(evidence: Evidence, value: Callable[[Contingency], float]) -> Score:
    clusters = evidence[Clusters]
    detail = evidence.compute_once("clustering", clusters.detail)
    return Score(math.fsum(map(value, clusters.tables)) / len(clusters.tables), details=(detail,))


PartitionValue = Callable[[Floats, Floats, Floats], Floats]
"""(B,) values from sizes of classes (B, C), of clusters (B, K), and of what they have in common (B, E)."""


def _resample_partitions(value: PartitionValue) -> Callable[[Metric, Evaluation], ClassStatistic | None]:
    """The metric where a class counts as often as it is drawn, with all its points, in the clusters they formed."""

    def resample(metric: Metric, evaluation: Evaluation) -> ClassStatistic | None:
        from scipy.sparse import csr_array

        clustering = evaluation.detail(ClusterAssignments)
        if clustering is None:
            return None
        present, member = np.unique(evaluation.query_classes.numpy(), return_inverse=True)
        sizes = np.bincount(member).astype(np.float64)
        tables = []
        for clusters in clustering.clusters:
            width = int(clusters.max()) + 1
            index, counts = np.unique(member * width + clusters, return_counts=True)
            shape = len(index), width
            cluster = csr_array((counts.astype(np.float64), (np.arange(len(index)), index % width)), shape)
            tables.append((index // width, counts.astype(np.float64), cluster))

        def of_weights(weights: Floats) -> Floats:
            values = np.zeros(len(weights))
            for in_class, counts, cluster in tables:
                for rows in slices(len(weights), max(1, WEIGHT_CHUNK_SIZE // len(counts))):
                    drawn = weights[rows][:, in_class]
                    values[rows] += value(weights[rows] * sizes, drawn @ cluster, drawn * counts) / len(tables)
            return values

        return shift_to_value(evaluation[metric.name], ClassStatistic(present, of_weights))

    return resample


def _count_pairs(sizes: Floats) -> Floats:
    """(B,) twice the pairs within parts of (B, ·) sizes."""
    return np.asarray((sizes * (sizes - 1)).sum(axis=1))


def _partition_f1(classes: Floats, clusters: Floats, joint: Floats) -> Floats:
    """2·joint / (in one class + in one cluster), in pairs."""
    return 2 * _count_pairs(joint) / (_count_pairs(classes) + _count_pairs(clusters))


def _entropy(sizes: Floats) -> Floats:
    """(B,) H = log n − Σ m log m / n of parts of (B, ·) sizes m."""
    points = sizes.sum(axis=1)
    return np.asarray(np.log(points) - (sizes * np.log(np.maximum(sizes, 1))).sum(axis=1) / points)


def _partition_nmi(average: Callable[[Floats, Floats], Floats]) -> PartitionValue:
    def value(classes: Floats, clusters: Floats, joint: Floats) -> Floats:
        """I / norm, I = H_classes + H_clusters − H_joint."""
        class_entropy, cluster_entropy, joint_entropy = map(_entropy, (classes, clusters, joint))
        norm = average(class_entropy, cluster_entropy)
        return np.asarray((class_entropy + cluster_entropy - joint_entropy) / np.where(norm > 0, norm, 1))

    return value


def _partition_ami(classes: Floats, clusters: Floats, joint: Floats) -> Floats:
    """(I − E[I]) / (norm − E[I]), norm the mean of the entropies."""
    class_entropy, cluster_entropy, joint_entropy = map(_entropy, (classes, clusters, joint))
    expected = np.array([_expected_information(a[a > 0], b[b > 0]) for a, b in zip(classes, clusters, strict=True)])
    norm = (class_entropy + cluster_entropy) / 2 - expected
    return np.asarray((class_entropy + cluster_entropy - joint_entropy - expected) / np.where(norm > 0, norm, 1))


def _expected_information(class_sizes: Floats, cluster_sizes: Floats) -> float:
    """E[I] = 1/n Σ_uv E[m log(m/λ)] over counts m of mean λ = a_u·b_v/n; a hundred times faster than the exact sum.

    Counts of random partitions vary less than Poisson counts: the variance, and with it E to leading order, is smaller
    by (1 − a_u/n)(1 − b_v/n).
    """
    points = class_sizes.sum()
    a, a_times = np.unique(class_sizes, return_counts=True)
    b, b_times = np.unique(cluster_sizes, return_counts=True)
    log_mean, excess = _poisson_excess()
    pair_terms = np.interp(np.log(np.outer(a, b) / points), log_mean, excess) * np.outer(1 - a / points, 1 - b / points)
    return float(a_times @ pair_terms @ b_times / points)


@cache
def _poisson_excess() -> tuple[Floats, Floats]:
    """Log λ, evenly spaced, and E[m log(m/λ)] of Poisson counts m of mean λ."""
    log_mean = np.linspace(math.log(1e-7), math.log(1e5), 800)
    excess = []
    for mean in np.exp(log_mean):
        m = torch.arange(1, int(mean + 12 * math.sqrt(mean) + 40), dtype=torch.float64)
        probability = (m * math.log(mean) - mean - torch.lgamma(m + 1)).exp()
        excess.append(float((probability * m * (m / mean).log()).sum()))
    return log_mean, np.array(excess)


@metric(
    "nmi",
    examples=("nmi",),
    collectors=(Clusters,),
    options=OPTIONS,
    resample=_resample_partitions(_partition_nmi(lambda first, second: (first + second) / 2)),
)
def _nmi(_: Metric, evidence: Evidence) -> Score:
    """Normalised mutual information of classes and k-means clusters."""
    return _mean_over_runs(evidence, normalized_mutual_information)


@metric(
    "nmi_geometric",
    examples=("nmi_geometric",),
    collectors=(Clusters,),
    options=OPTIONS,
    resample=_resample_partitions(_partition_nmi(lambda first, second: np.sqrt(first * second))),
)
def _nmi_geometric(_: Metric, evidence: Evidence) -> Score:
    """Mutual information normalised by the geometric mean of the entropies."""
    return _mean_over_runs(evidence, lambda table: normalized_mutual_information(table, "geometric"))


@metric(
    "ami",
    examples=("ami",),
    collectors=(Clusters,),
    options=OPTIONS,
    resample=_resample_partitions(_partition_ami),
)
def _ami(_: Metric, evidence: Evidence) -> Score:
    """Mutual information of classes and k-means clusters, adjusted for chance."""
    return _mean_over_runs(evidence, adjusted_mutual_information)


@metric("f1", examples=("f1",), collectors=(Clusters,), options=OPTIONS, resample=_resample_partitions(_partition_f1))
def _f1(_: Metric, evidence: Evidence) -> Score:
    """F1 over pairs of points: in one cluster, in one class."""
    return _mean_over_runs(evidence, pairwise_f1)
