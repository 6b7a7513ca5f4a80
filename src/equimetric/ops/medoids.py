"""Loss-augmented clustering around medoids, greedily and by exchanges (PAM)."""

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
        self.given = distance
        # Row c: the distances of all samples to candidate c.
        self.distance = np.ascontiguousarray(distance.T.numpy())
        self.member = member.numpy()
        self.gamma = gamma
        self.weight = None if weight is None else weight.numpy()
        self.agreement = Agreement(self.member, self.weight)
        self.classes = self.agreement.classes
        self.most = max(1, MAX_COMPARED_DISTANCES // len(member))

    def sum_samples(self, distance: Numbers) -> Numbers:
        """(C,) Σ_i w_i d_ci of (C, B) distances."""
        return np.asarray(distance.sum(1) if self.weight is None else distance @ self.weight)

    def solve(self, sweeps: int) -> tuple[Tensor, float]:
        """(B,) the medoid of each sample in the best clustering found, and its Δ."""
        medoids = self.exchange(self.greedy(), sweeps)
        state = self.nearest(medoids)
        return torch.from_numpy(medoids[state.cluster]), self.agreement.one_minus_nmi(state.counts).item()

    def greedy(self) -> Indices:
        """(K,) medoids, each the one that adds most to F + γ Δ of those before it."""
        nearest, cluster = np.full(len(self.member), np.inf), np.zeros_like(self.member)
        reached, taken = np.empty_like(self.distance), np.empty_like(self.distance, dtype=bool)
        medoids: list[int] = []
        for number in range(self.classes):
            energy = -self.sum_samples(np.minimum(self.distance, nearest, out=reached))
            energy[medoids] = -np.inf
            # Row c: the samples that medoid c takes over, itself always.
            np.fill_diagonal(np.less(self.distance, nearest, out=taken), True)
            best = self.best(energy, self.take_over(taken, cluster, number))
            cluster[taken[best]] = number
            nearest = reached[best].copy()
            medoids.append(best)
        return np.array(medoids)

    def take_over(self, taken: NDArray[np.bool_], cluster: Indices, number: int) -> Callable[[Indices], Numbers]:
        """The function from (A,) candidates to Δ where each takes samples over into the new cluster `number`."""
        counts = self.agreement.count(cluster, number + 1)

        def delta(candidates: Indices) -> Numbers:
            # A single cluster says nothing, whatever its medoid.
            if not number:
                return np.ones(len(candidates))
            trial, sample = np.divmod(np.flatnonzero(taken[candidates]), len(cluster))
            moves = Moves(trial, sample, np.full_like(sample, number))
            return self.agreement.one_minus_nmi(counts, moves, len(candidates))

        return delta

    def best(self, energy: Numbers, delta: Callable[[Indices], Numbers]) -> int:
        """The candidate of the largest energy + γ Δ; `delta` gives Δ of some candidates.

        Δ ≤ 1, so candidates are tried by descending energy until energy + γ cannot win.
        """
        score = np.full_like(energy, -np.inf)
        order = np.argsort(-energy, kind="stable")
        first, trials = 0, min(FIRST_TRIALS, self.most)
        while first < len(order) and energy[order[first]] + self.gamma >= score.max() - TIE:
            part = order[first : first + trials]
            score[part] = energy[part] + self.gamma * delta(part)
            first, trials = first + trials, min(2 * trials, self.most)
        return int(np.flatnonzero(score >= score.max() - TIE)[0])

    def exchange(self, medoids: Indices, sweeps: int) -> Indices:
        """(K,) medoids after sweeps of PAM, which exchange each for the best member of its cluster."""
        for _ in range(sweeps):
            before, medoids = medoids, self.sweep(medoids)
            if np.array_equal(medoids, before):
                break
        return medoids

    def sweep(self, medoids: Indices) -> Indices:
        """(K,) medoids, each exchanged for the best member of its cluster, given the exchanges before it.

        Several clusters are tried at once, with the medoids as they are; those behind an exchange are tried again.
        """
        state = self.nearest(medoids)
        energy = -self.sum_samples(self.distance * (state.cluster[:, None] == state.cluster))
        medoids, members = medoids.copy(), np.argsort(state.cluster, kind="stable")
        ends = np.cumsum(np.bincount(state.cluster))
        first, start, trials = 0, 0, FIRST_TRIALS
        while first < len(medoids):
            last = max(first + 1, int(np.searchsorted(ends, start + min(trials, self.most), "right")))
            candidates, begins = members[start : ends[last - 1]], np.r_[start, ends[first : last - 1]] - start
            numbers = np.repeat(np.arange(first, last), np.diff(begins, append=len(candidates)))
            score = energy[candidates] + self.gamma * self.exchange_delta(state, candidates, numbers)
            best = np.flatnonzero(score >= np.maximum.reduceat(score, begins)[numbers - first] - TIE)
            chosen = candidates[best[np.searchsorted(best, begins)]]
            exchanged = np.flatnonzero(chosen != medoids[first:last])
            trials *= 2
            if len(exchanged):
                last, trials = first + int(exchanged[0]) + 1, FIRST_TRIALS
                medoids[last - 1] = chosen[exchanged[0]]
                state = self.nearest(medoids)
            first, start = last, int(ends[last - 1])
        return medoids

    def exchange_delta(self, state: Nearest, candidates: Indices, numbers: Indices) -> Numbers:
        """(A,) Δ with each candidate in place of the medoid of the cluster that `numbers` says."""
        number = numbers[:, None]
        # A cluster without its medoid: its samples go to their second nearest.
        own = state.cluster == number
        rest = np.where(own, state.second_cluster, state.cluster)
        bound = np.where(own, state.second_distance, state.distance)
        distance = self.distance[candidates]
        distance[np.arange(len(candidates)), candidates] = SELF_DISTANCE
        taken = (distance < bound) | ((distance == bound) & (number < rest))
        cluster = np.where(taken, number, rest)
        indices = np.flatnonzero(cluster != state.cluster)
        moves = Moves(*np.divmod(indices, len(state.cluster)), cluster.ravel()[indices])
        return self.agreement.one_minus_nmi(state.counts, moves, len(candidates))

    def nearest(self, medoids: Indices) -> Nearest:
        """The two nearest of (K,) medoids for every sample."""
        distance, every = self.distance[medoids].T.copy(), np.arange(len(self.member))
        distance[medoids, np.arange(len(medoids))] = SELF_DISTANCE
        cluster = distance.argmin(1)
        smallest = distance[every, cluster]
        distance[every, cluster] = np.inf
        second = distance.argmin(1)
        counts = self.agreement.count(cluster, len(medoids))
        return Nearest(cluster, smallest, second, distance[every, second], counts)

    def class_medoids(self) -> Tensor:
        """(B,) for each sample the one of its class with the smallest sum of distances to the class."""
        others = torch.from_numpy(self.member[:, None] != self.member)
        among = self.given.T.masked_fill(others, 0)
        spread = among.sum(0) if self.weight is None else torch.from_numpy(self.weight) @ among
        by_class = np.lexsort((spread.numpy(), self.member))
        first = np.searchsorted(self.member[by_class], np.arange(self.classes))
        return torch.from_numpy(by_class[first][self.member])
