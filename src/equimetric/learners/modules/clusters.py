"""Clusters of the training set with numbers that stay consistent from one clustering to the next."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from equimetric.learners.batch import Task
from equimetric.ops.kmeans import kmeans

__all__ = ["cluster", "cluster_tasks", "mask_singletons", "match_clusters"]


def cluster(points: Tensor, count: int, *, seed: int, previous: Tensor | None = None, starts: int = 5) -> Tensor:
    """(N, D) points → (N,) clusters by k-means; numbered as in a `previous` clustering where one is given."""
    clusters = kmeans(points, count, seed=seed, iterations=100, n_init=starts).assignment
    return clusters if previous is None else match_clusters(clusters, previous, count)


def match_clusters(clusters: Tensor, previous: Tensor, count: int) -> Tensor:
    """The (N,) clusters under the numbers for which the fewest rows change, by the Hungarian method.

    The cost of giving cluster a the number b is the number of rows that are in one of them but not in both.
    """
    was_clustered = previous >= 0
    pairs = (clusters[was_clustered] * count + previous[was_clustered]).cpu()
    shared = torch.bincount(pairs, minlength=count * count).view(count, count)
    previous_sizes = torch.bincount(previous[was_clustered].cpu(), minlength=count)
    sizes = torch.bincount(clusters.cpu(), minlength=count)
    rows, columns = linear_sum_assignment((sizes[:, None] + previous_sizes - 2 * shared).numpy())
    new_index = torch.empty(count, dtype=torch.int64)
    new_index[torch.from_numpy(rows)] = torch.from_numpy(columns)
    return new_index.to(clusters.device)[clusters]


def mask_singletons(clusters: Tensor, labels: Tensor, min_count: int = 2) -> Tensor:
    """The clusters with −1 for rows of a class with fewer than `min_count` rows in its cluster."""
    keys = clusters * (int(labels.max()) + 1) + labels
    _, group, counts = torch.unique(keys, return_inverse=True, return_counts=True)
    return torch.where(counts[group] >= min_count, clusters, -1)


def cluster_tasks(names: Iterable[str], clusters: Tensor, labels: Tensor) -> tuple[Task, ...]:
    """A task for every cluster, by its name, whose labels are the classes; none for clusters of fewer than two."""
    tasks = []
    for c, name in enumerate(names):
        cluster_labels = torch.where(clusters == c, labels, -1)
        if len(torch.unique(cluster_labels[cluster_labels >= 0])) > 1:
            tasks.append(Task(name, labels=cluster_labels))
    return tuple(tasks)
