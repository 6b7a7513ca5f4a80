"""Clusters of the training set whose numbers keep their meaning from one clustering to the next."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from equimetric.learners.batch import Task
from equimetric.ops.kmeans import kmeans

__all__ = ["cluster", "cluster_tasks", "leave_out_single", "match_clusters"]


def cluster(points: Tensor, count: int, *, seed: int, previous: Tensor | None = None, starts: int = 5) -> Tensor:
    """(N, D) points → (N,) clusters by k-means; numbered as in a `previous` clustering where one is given."""
    found = kmeans(points, count, seed=seed, iterations=100, n_init=starts).assignment
    return found if previous is None else match_clusters(found, previous, count)


def match_clusters(found: Tensor, previous: Tensor, count: int) -> Tensor:
    """The (N,) clusters under the numbers for which the fewest rows change, by the Hungarian method.

    The cost of giving cluster a the number b is the number of rows that are in one of them but not in both.
    """
    known = previous >= 0
    pairs = (found[known] * count + previous[known]).cpu()
    shared = torch.bincount(pairs, minlength=count * count).view(count, count)
    before = torch.bincount(previous[known].cpu(), minlength=count)
    now = torch.bincount(found.cpu(), minlength=count)
    rows, columns = linear_sum_assignment((now[:, None] + before - 2 * shared).numpy())
    number = torch.empty(count, dtype=torch.int64)
    number[torch.from_numpy(rows)] = torch.from_numpy(columns)
    return number.to(found.device)[found]


def leave_out_single(clusters: Tensor, labels: Tensor, min_count: int = 2) -> Tensor:
    """The clusters with −1 for rows of a class with fewer than `min_count` rows in its cluster."""
    keys = clusters * (int(labels.max()) + 1) + labels
    _, place, counts = torch.unique(keys, return_inverse=True, return_counts=True)
    return torch.where(counts[place] >= min_count, clusters, -1)


def cluster_tasks(names: Iterable[str], clusters: Tensor, labels: Tensor) -> tuple[Task, ...]:
    """A task for every cluster, by its name, whose labels are the classes; none for clusters of fewer than two."""
    tasks = []
    for number, name in enumerate(names):
        own = torch.where(clusters == number, labels, -1)
        if len(torch.unique(own[own >= 0])) > 1:
            tasks.append(Task(name, labels=own))
    return tuple(tasks)
