"""Loss-augmented clustering around medoids, greedily and by swaps (PAM)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.ops.contingency import Agreement, Counts, Moves

__all__ = ["MedoidSearch"]

TIE = 1e-12
"""Scores no further apart than this are equal; the lowest index wins."""

FIRST_TRIALS = 128
"""Candidates that are tried together at first; then twice as many each time."""

MAX_COMPARED_DISTANCES = 2**20
"""Distances of candidates to samples that are compared at once."""

SELF_DISTANCE = -1.0
"""Distance of a medoid to itself: below all others, also to a copy of it."""

Indices = NDArray[np.int64]
Numbers = NDArray[np.float64]


class Nearest(NamedTuple):
    """The two nearest medoids of each sample, the first of equals; a medoid is its own nearest."""

    cluster: Indices
    distance: Numbers
    second_cluster: Indices
    second_distance: Numbers
    counts: Counts


class MedoidSearch:
    """Loss-augmented inference: medoids that maximise F(S) + γ Δ(S).

    Every sample counts once, or as often as its (B,) weight above 0 says. Δ of a trial is that of the clustering it
    starts from, updated for the samples that change their cluster.
    """

    def __init__(self, distance: Tensor, member: Tensor, gamma: float, weight: Tensor | None = None) -> None:
        self._distances = distance
        # Row c: the distances of all samples to candidate c.
        self.distance = np.ascontiguousarray(distance.T.numpy())
        self.member = member.numpy()
        self.gamma = gamma
        self.weight = None if weight is None else weight.numpy()
        self.agreement = Agreement(self.member, self.weight)
        self.classes = self.agreement.classes
        self.max_candidates = max(1, MAX_COMPARED_DISTANCES // len(member))

    def sum_samples(self, distance: Numbers) -> Numbers:
        """(C,) Σ_i w_i d_ci of (C, B) distances."""
        return np.asarray(distance.sum(1) if self.weight is None else distance @ self.weight)

    def solve(self, sweeps: int) -> tuple[Tensor, float]:
        """(B,) the medoid of each sample in the best clustering found, and its Δ."""
        medoids = self.swap(self.greedy(), sweeps)
        state = self.nearest(medoids)
        return torch.from_numpy(medoids[state.cluster]), self.agreement.one_minus_nmi(state.counts).item()

    def greedy(self) -> Indices:
        """(K,) medoids, each the one that adds most to F + γ Δ of those before it."""
        nearest_distance, cluster = np.full(len(self.member), np.inf), np.zeros_like(self.member)
        new_distance, takes_over = np.empty_like(self.distance), np.empty_like(self.distance, dtype=bool)
        medoids: list[int] = []
        for index in range(self.classes):
            energy = -self.sum_samples(np.minimum(self.distance, nearest_distance, out=new_distance))
            energy[medoids] = -np.inf
            # Row c: the samples that medoid c takes over, itself always.
            np.fill_diagonal(np.less(self.distance, nearest_distance, out=takes_over), True)
            best = self.best_candidate(energy, self.delta_of_new_cluster(takes_over, cluster, index))
            cluster[takes_over[best]] = index
            nearest_distance = new_distance[best].copy()
            medoids.append(best)
        return np.array(medoids)

    def delta_of_new_cluster(
        self, takes_over: NDArray[np.bool_], cluster: Indices, new_cluster: int
    ) -> Callable[[Indices], Numbers]:
        """Make the function from (A,) candidates to Δ where each takes samples over into `new_cluster`."""
        counts = self.agreement.count(cluster, new_cluster + 1)

        def delta(candidates: Indices) -> Numbers:
            # A single cluster says nothing, whatever its medoid.
            if not new_cluster:
                return np.ones(len(candidates))
            trial, sample = np.divmod(np.flatnonzero(takes_over[candidates]), len(cluster))
            moves = Moves(trial, sample, np.full_like(sample, new_cluster))
            return self.agreement.one_minus_nmi(counts, moves, len(candidates))

        return delta

    def best_candidate(self, energy: Numbers, delta: Callable[[Indices], Numbers]) -> int:
        """The candidate of the largest energy + γ Δ; `delta` gives Δ of some candidates.

        Δ ≤ 1, so candidates are tried by descending energy until energy + γ cannot win.
        """
        score = np.full_like(energy, -np.inf)
        order = np.argsort(-energy, kind="stable")
        first, trials = 0, min(FIRST_TRIALS, self.max_candidates)
        while first < len(order) and energy[order[first]] + self.gamma >= score.max() - TIE:
            part = order[first : first + trials]
            score[part] = energy[part] + self.gamma * delta(part)
            first, trials = first + trials, min(2 * trials, self.max_candidates)
        return int(np.flatnonzero(score >= score.max() - TIE)[0])

    def swap(self, medoids: Indices, sweeps: int) -> Indices:
        """(K,) medoids after sweeps of PAM, which swap each for the best member of its cluster."""
        for _ in range(sweeps):
            before, medoids = medoids, self.sweep(medoids)
            if np.array_equal(medoids, before):
                break
        return medoids

    def sweep(self, medoids: Indices) -> Indices:
        """(K,) medoids, each swapped for the best member of its cluster, given the swaps before it.

        Several clusters are tried at once, with the medoids as they are; those after a swap are tried again.
        """
        state = self.nearest(medoids)
        energy = -self.sum_samples(self.distance * (state.cluster[:, None] == state.cluster))
        medoids, members = medoids.copy(), np.argsort(state.cluster, kind="stable")
        ends = np.cumsum(np.bincount(state.cluster))
        first, start, trials = 0, 0, FIRST_TRIALS
        while first < len(medoids):
            last = max(first + 1, int(np.searchsorted(ends, start + min(trials, self.max_candidates), "right")))
            candidates, begins = members[start : ends[last - 1]], np.r_[start, ends[first : last - 1]] - start
            clusters = np.repeat(np.arange(first, last), np.diff(begins, append=len(candidates)))
            score = energy[candidates] + self.gamma * self.swap_delta(state, candidates, clusters)
            best = np.flatnonzero(score >= np.maximum.reduceat(score, begins)[clusters - first] - TIE)
            chosen = candidates[best[np.searchsorted(best, begins)]]
            changed = np.flatnonzero(chosen != medoids[first:last])
            trials *= 2
            if len(changed):
                last, trials = first + int(changed[0]) + 1, FIRST_TRIALS
                medoids[last - 1] = chosen[changed[0]]
                state = self.nearest(medoids)
            first, start = last, int(ends[last - 1])
        return medoids

    def swap_delta(self, state: Nearest, candidates: Indices, clusters: Indices) -> Numbers:
        """(A,) Δ with each candidate in place of the medoid of its entry in `clusters`."""
        own_cluster = clusters[:, None]
        # A cluster without its medoid: its samples go to their second nearest.
        is_member = state.cluster == own_cluster
        fallback = np.where(is_member, state.second_cluster, state.cluster)
        limit = np.where(is_member, state.second_distance, state.distance)
        distance = self.distance[candidates]
        distance[np.arange(len(candidates)), candidates] = SELF_DISTANCE
        takes_over = (distance < limit) | ((distance == limit) & (own_cluster < fallback))
        cluster = np.where(takes_over, own_cluster, fallback)
        indices = np.flatnonzero(cluster != state.cluster)
        moves = Moves(*np.divmod(indices, len(state.cluster)), cluster.ravel()[indices])
        return self.agreement.one_minus_nmi(state.counts, moves, len(candidates))

    def nearest(self, medoids: Indices) -> Nearest:
        """The two nearest of (K,) medoids for every sample."""
        distance, rows = self.distance[medoids].T.copy(), np.arange(len(self.member))
        distance[medoids, np.arange(len(medoids))] = SELF_DISTANCE
        cluster = distance.argmin(1)
        smallest = distance[rows, cluster]
        distance[rows, cluster] = np.inf
        second = distance.argmin(1)
        counts = self.agreement.count(cluster, len(medoids))
        return Nearest(cluster, smallest, second, distance[rows, second], counts)

    def class_medoids(self) -> Tensor:
        """(B,) for each sample the one of its class with the smallest sum of distances to the class."""
        other_class = torch.from_numpy(self.member[:, None] != self.member)
        within_class = self._distances.T.masked_fill(other_class, 0)
        distance_sums = within_class.sum(0) if self.weight is None else torch.from_numpy(self.weight) @ within_class
        by_class = np.lexsort((distance_sums.numpy(), self.member))
        first = np.searchsorted(self.member[by_class], np.arange(self.classes))
        return torch.from_numpy(by_class[first][self.member])
