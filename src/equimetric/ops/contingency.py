"""Agreement of clusterings with classes, counted once and updated for the few samples that change their cluster."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Agreement", "Counts", "Moves"]

MIN_ENTROPY_PRODUCT = 1e-12
"""Product of entropies from which its root is taken."""


class Moves(NamedTuple):
    """Samples that leave their cluster for another one in some trials: (E,) of each, one entry per move."""

    trial: NDArray[np.int64]
    sample: NDArray[np.int64]
    target: NDArray[np.int64]
    """The cluster that the sample goes to."""


class Counts(NamedTuple):
    """A clustering of B samples: how many of them every cluster has, and of every class."""

    cluster: NDArray[np.int64]
    """(B,) the cluster of each sample."""
    cells: NDArray[Any]
    """(K · C,) samples of each class in each cluster."""
    sizes: NDArray[Any]
    """(K,) samples in each cluster."""
    joint: float
    """Σ n log n of the cells."""
    cluster_term: float
    """Σ n log n of the sizes."""


class Agreement:
    """1 − NMI of (B,) classes and clusterings, NMI by the geometric mean of the entropies.

    All its terms are sums of n log n, n numbers of samples, or sums of their weights.
    """

    def __init__(self, member: NDArray[np.int64], weight: NDArray[np.float64] | None = None) -> None:
        self.member = member
        self.weight = weight
        self.multiplicity: NDArray[Any] = np.ones_like(member) if weight is None else weight
        self.classes = int(member.max()) + 1
        counts = np.arange(len(member) + 1)
        self.table = counts * np.log(np.maximum(counts, 1))
        self.class_term = self.n_log_n(np.bincount(member, weight)).sum()
        self.whole = self.n_log_n(self.multiplicity.sum())

    def n_log_n(self, counts: NDArray[Any]) -> NDArray[np.float64]:
        """(…,) n log n: whole numbers from a table."""
        if self.weight is None:
            values: NDArray[np.float64] = self.table[counts]
            return values
        # What is left of weights that cancel may lie a little below 0.
        positive_counts = np.maximum(counts, np.finfo(np.float64).tiny)
        return np.asarray(positive_counts * np.log(positive_counts))

    def count(self, cluster: NDArray[np.int64], num_clusters: int) -> Counts:
        """The samples in each of `num_clusters` clusters."""
        cells = np.bincount(cluster * self.classes + self.member, self.weight, num_clusters * self.classes)
        sizes = cells.reshape(num_clusters, self.classes).sum(1)
        joint, cluster_term = (float(self.n_log_n(counts).sum()) for counts in (cells, sizes))
        return Counts(cluster, cells, sizes, joint, cluster_term)

    def one_minus_nmi(self, counts: Counts, moves: Moves | None = None, trials: int = 1) -> NDArray[np.float64]:
        """(T,) 1 − NMI of a clustering after the moves of each trial."""
        joint, cluster_term = np.full(trials, counts.joint), np.full(trials, counts.cluster_term)
        if moves is not None and len(moves.trial):
            cells, change = self.list_changes(counts, moves)
            joint += self.sum_changes(cells, change, counts.cells, trials)
            cluster_term += self.sum_changes(cells // self.classes, change, counts.sizes, trials)
        information = joint - cluster_term - self.class_term + self.whole
        entropies = (self.whole - cluster_term) * (self.whole - self.class_term)
        return np.asarray(
            1 - np.where(entropies > 0, information / np.sqrt(np.maximum(entropies, MIN_ENTROPY_PRODUCT)), 0)
        )

    def list_changes(self, counts: Counts, moves: Moves) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """(2E,) cells that samples leave or enter, ascending by trial, cluster and class, and the weights added."""
        trial, classes, weight = (
            moves.trial * len(counts.sizes),
            self.member[moves.sample],
            self.multiplicity[moves.sample],
        )
        clusters = np.concatenate([trial + counts.cluster[moves.sample], trial + moves.target])
        cells = clusters * self.classes + np.concatenate([classes, classes])
        # Sorting numbers is several times faster than sorting their indices, so each holds its index in its last bits.
        bits = len(cells).bit_length()
        ordered = np.sort((cells << bits) | np.arange(len(cells)))
        return ordered >> bits, np.concatenate([-weight, weight])[ordered & ((1 << bits) - 1)]

    def sum_changes(
        self, indices: NDArray[np.int64], change: NDArray[Any], counts: NDArray[Any], trials: int
    ) -> NDArray[np.float64]:
        """(T,) by how much Σ n log n of (P,) counts changes in each trial t, which owns the cells tP … tP + P − 1."""
        starts = np.flatnonzero(np.concatenate([[True], indices[1:] != indices[:-1]]))
        trial, index = np.divmod(indices[starts], len(counts))
        before = counts[index]
        gain = self.n_log_n(before + np.add.reduceat(change, starts)) - self.n_log_n(before)
        return np.asarray(np.bincount(trial, gain, trials), dtype=np.float64)
