"""Loss-augmented clustering around medoids, greedily and by exchanges (PAM)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

__all__ = ["MedoidSearch"]

TIE = 1e-12
"""Scores no further apart than this are equal; the lowest index wins."""

CONTINGENCY_ENTRIES = 2**20
"""Size of the contingency tables counted at once."""


class MedoidSearch:
    """Loss-augmented inference: medoids that maximise F(S) + γ Δ(S).

    Every sample counts once, or as often as its (B,) weight above 0 says.
    """

    def __init__(self, distance: Tensor, member: Tensor, gamma: float, weight: Tensor | None = None) -> None:
        self.distance = distance
        self.member = member
        self.gamma = gamma
        self.weight = weight
        self.classes = int(member.max()) + 1
        counts = torch.arange(len(member) + 1, dtype=torch.float64)
        self.table = torch.special.xlogy(counts, counts)
        self.times = torch.ones_like(member) if weight is None else weight
        self.class_term = self.n_log_n(torch.zeros(self.classes).to(self.times).index_add(0, member, self.times)).sum()

    def n_log_n(self, counts: Tensor) -> Tensor:
        """(…,) n log n: whole numbers from a table."""
        found: Tensor = self.table[counts] if self.weight is None else torch.special.xlogy(counts, counts)
        return found

    def sum_samples(self, distance: Tensor, rows: Tensor | None = None) -> Tensor:
        """(C,) Σ_i w_i d_ic of (B, C) distances, or of (A, C) those of the samples `rows`."""
        if self.weight is None:
            return distance.sum(0)
        return (self.weight if rows is None else self.weight[rows]) @ distance

    def solve(self, sweeps: int) -> tuple[Tensor, float]:
        """(B,) the medoid of each sample in the best clustering found, and its Δ."""
        medoids = self.exchange(self.greedy(), sweeps)
        cluster = self.assign(medoids)
        return medoids[cluster], self.one_minus_nmi(cluster[None], len(medoids)).item()

    def greedy(self) -> Tensor:
        """(K,) medoids, each the one that adds most to F + γ Δ of those before it."""
        nearest = torch.full_like(self.distance[0], torch.inf)
        cluster = torch.zeros_like(self.member)
        medoids: list[int] = []
        for number in range(self.classes):
            energy = -self.sum_samples(torch.minimum(self.distance, nearest[:, None]))
            energy[medoids] = -torch.inf
            # Row c: the samples that medoid c takes over, itself always.
            taken = (nearest > self.distance.T).fill_diagonal_(True)
            clusters = torch.where(taken, number, cluster)
            best = self.best(energy, clusters.__getitem__, number + 1)
            cluster = clusters[best]
            nearest = torch.minimum(nearest, self.distance[:, best])
            medoids.append(best)
        return torch.tensor(medoids)

    def exchange(self, medoids: Tensor, sweeps: int) -> Tensor:
        """(K,) medoids after sweeps of PAM, which exchange each for the best member of its cluster."""
        for _ in range(sweeps):
            before, cluster = medoids.clone(), self.assign(medoids)
            for number in range(len(medoids)):
                members = (cluster == number).nonzero()[:, 0]
                trials = medoids.repeat(len(members), 1)
                trials[:, number] = members
                energy = -self.sum_samples(self.distance[members][:, members], members)
                best = self.best(energy, partial(self.assign_some, trials), len(medoids))
                medoids[number] = members[best]
            if torch.equal(medoids, before):
                break
        return medoids

    def best(self, energy: Tensor, clusters: Callable[[Tensor], Tensor], number: int) -> int:
        """The candidate of the largest energy + γ Δ; `clusters` gives (A, B) the clusterings of some candidates.

        Δ ≤ 1, so candidates are tried by descending energy until energy + γ cannot win.
        """
        score = torch.full_like(energy, -torch.inf)
        step = max(1, CONTINGENCY_ENTRIES // (number * self.classes))
        for candidates in torch.split(energy.argsort(descending=True, stable=True), step):
            if energy[candidates[0]] + self.gamma < score.max() - TIE:
                break
            score[candidates] = energy[candidates] + self.gamma * self.one_minus_nmi(clusters(candidates), number)
        return int((score >= score.max() - TIE).nonzero()[0])

    def assign(self, medoids: Tensor) -> Tensor:
        """(…, B) the number of every sample's nearest medoid among (…, K), the first of equals; medoids their own."""
        cluster = self.distance[:, medoids].movedim(0, -2).argmin(-1)
        return cluster.scatter(-1, medoids, torch.arange(medoids.shape[-1]).expand_as(medoids))

    def assign_some(self, trials: Tensor, candidates: Tensor) -> Tensor:
        """(A, B) clusterings around some of the (…, K) trials."""
        return self.assign(trials[candidates])

    def one_minus_nmi(self, cluster: Tensor, number: int) -> Tensor:
        """(A,) 1 − NMI of (A, B) clusterings into `number` clusters, from counts n and their n log n."""
        cell = cluster * self.classes + self.member
        counts = torch.zeros(len(cluster), number * self.classes, dtype=self.times.dtype)
        counts = counts.scatter_add(1, cell, self.times.expand_as(cell))
        joint = self.n_log_n(counts).sum(1)
        cluster_term = self.n_log_n(counts.view(len(cluster), number, self.classes).sum(2)).sum(1)
        whole = self.n_log_n(self.times.sum())
        information = joint - cluster_term - self.class_term + whole
        entropies = (whole - cluster_term) * (whole - self.class_term)
        return 1 - torch.where(entropies > 0, information / entropies.clamp_min(TIE).sqrt(), 0)

    def class_medoids(self) -> Tensor:
        """(K,) the sample of each class with the smallest sum of distances to its class."""
        same = self.member[:, None] == self.member[None, :]
        spread = self.sum_samples(self.distance.T.masked_fill(~same, 0))
        return torch.stack(
            [spread.masked_fill(self.member != number, torch.inf).argmin() for number in range(self.classes)]
        )
