"""Two partitions of the same points, classes and clusters: mutual information and pairwise F1.

The metrics are functions of the contingency table, of which only entries above zero are held.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.arrays import Integers
from equimetric.ops.blocks import slices

__all__ = [
    "Contingency",
    "adjusted_mutual_information",
    "expected_information",
    "normalized_mutual_information",
    "pairwise_f1",
]

Average = Literal["arithmetic", "geometric"]
EXPECTATION_TERMS = 2**20


@dataclass(frozen=True)
class Contingency:
    """The number of points n_uv of each class in each cluster; only entries above zero are held.

    counts (E,), in_class (E,), in_cluster (E,): the entries with their rows and columns
    class_sizes a_u and cluster_sizes b_v: the sums of rows and columns, without empty ones
    """

    counts: Integers
    in_class: Integers
    in_cluster: Integers
    class_sizes: Integers
    cluster_sizes: Integers

    @classmethod
    def from_labels(cls, classes: Tensor | NDArray[Any], clusters: Tensor | NDArray[Any]) -> "Contingency":
        """The table of two partitions (N,) of the same points; the names of the parts do not matter."""
        if len(classes) != len(clusters) or not len(classes):
            raise EquimetricError(
                f"there are {len(classes)} classes but {len(clusters)} clusters of points; give one of each for every "
                "point, and at least one point"
            )
        _, row, class_sizes = np.unique(np.asarray(classes), return_inverse=True, return_counts=True)
        _, column, cluster_sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
        index, counts = np.unique(row * len(cluster_sizes) + column, return_counts=True)
        return cls(counts, index // len(cluster_sizes), index % len(cluster_sizes), class_sizes, cluster_sizes)

    @property
    def points(self) -> int:
        """The number of points, n."""
        return int(self.counts.sum())

    @property
    def identical(self) -> bool:
        """Whether both partitions are the same."""
        return len(self.counts) == len(self.class_sizes) == len(self.cluster_sizes)


def normalized_mutual_information(table: Contingency, average: Average = "arithmetic") -> float:
    """NMI = I / norm, with the information I = Σ n_uv/n · log(n·n_uv / (a_u·b_v)).

    The norm is the mean (H_classes + H_clusters)/2 of the entropies, or for `geometric` √(H_classes·H_clusters). A
    single part on both sides gives 1, on one side 0.
    """
    if table.identical:
        return 1.0
    norm = _average_entropy(table, average)
    return _information(table) / norm if norm > 0 else 0.0


def adjusted_mutual_information(table: Contingency, average: Average = "arithmetic") -> float:
    """AMI = (I − E[I]) / (norm − E[I]), where E[I] is the information of random partitions with the same sizes."""
    if table.identical:
        return 1.0
    if min(len(table.class_sizes), len(table.cluster_sizes)) == 1:
        return 0.0
    expected = expected_information(table.class_sizes, table.cluster_sizes)
    return (_information(table) - expected) / (_average_entropy(table, average) - expected)


def pairwise_f1(table: Contingency) -> float:
    """F1 = 2PR/(P + R) over unordered pairs of points: P of those in one cluster, R of those in one class.

    With Σ C(n_uv, 2) joint pairs, this is 2·joint / (in one cluster + in one class); 1 without any such pair.
    """
    joint, in_class, in_cluster = map(_pairs, (table.counts, table.class_sizes, table.cluster_sizes))
    return 2 * joint / (in_class + in_cluster) if in_class + in_cluster else 1.0


def _pairs(counts: Integers) -> int:
    return int((counts * (counts - 1) // 2).sum())


def _information(table: Contingency) -> float:
    """I = Σ n_uv/n · log(n·n_uv / (a_u·b_v)), in nats."""
    n, share = table.points, table.counts / table.points
    expected = table.class_sizes[table.in_class] / n * table.cluster_sizes[table.in_cluster]
    return max(0.0, float((share * np.log(table.counts / expected)).sum()))


def _average_entropy(table: Contingency, average: Average) -> float:
    classes, clusters = (
        -float((sizes / table.points * np.log(sizes / table.points)).sum())
        for sizes in (table.class_sizes, table.cluster_sizes)
    )
    if average == "arithmetic":
        return (classes + clusters) / 2
    if average == "geometric":
        return math.sqrt(classes * clusters)
    raise unknown_name("average of entropies", average, ["arithmetic", "geometric"])


def expected_information(class_sizes: Integers, cluster_sizes: Integers) -> float:
    """E[I] over random partitions with these sizes a_u and b_v, where n_uv is hypergeometric.

    E[I] = Σ_u Σ_v Σ_s s/n · log(n·s / (a_u·b_v)) · P(n_uv = s),
    P(n_uv = s) = a_u! b_v! (n−a_u)! (n−b_v)! / (n! s! (a_u−s)! (b_v−s)! (n−a_u−b_v+s)!).
    The inner sum depends on the two sizes alone: it is computed once for each pair of different sizes.
    """
    n = int(class_sizes.sum())
    log_factorial = torch.lgamma(torch.arange(1, n + 2, dtype=torch.float64)).numpy()
    cluster_sizes, cluster_times = np.unique(cluster_sizes, return_counts=True)
    expected = 0.0
    for a, times in zip(*np.unique(class_sizes, return_counts=True), strict=True):
        for block in slices(len(cluster_sizes), max(1, EXPECTATION_TERMS // int(a))):
            b = cluster_sizes[block, None]
            s = np.arange(1, min(a, b.max()) + 1)
            possible = (s <= b) & (s >= a + b - n)
            b_alone, neither = np.maximum(b - s, 0), np.maximum(n - a - b + s, 0)
            log_ways = log_factorial[a] + log_factorial[b] + log_factorial[n - a] + log_factorial[n - b]
            log_ways = log_ways - log_factorial[s] - log_factorial[a - s] - log_factorial[b_alone]
            probability = np.exp(np.where(possible, log_ways - log_factorial[neither] - log_factorial[n], -np.inf))
            summed = (s / n * np.log(s * (n / a) / b) * probability).sum(axis=1)
            expected += times * float(cluster_times[block] @ summed)
    return expected
