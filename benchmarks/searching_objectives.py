"""Objectives that search or draw before they count, each beside its textbook form: how many times faster is ours?

HIER beside noise drawn anew for every triple and proxy, with a graph over all triples; PDDM beside a graph over the
scores of all pairs; structured clustering beside a contingency table for every candidate. Both sides take turns,
forward and backward; printed are medians of CPU times, their ratio, and by how much the values differ. HIER's differ by
chance, because the textbook draws other noise.

    python benchmarks/searching_objectives.py
    python benchmarks/searching_objectives.py --rows structured_clustering --batch 512 --rounds 1
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

import equimetric as em
from versions import batch

Objective = Callable[[Tensor, Tensor], Tensor]
PART = 2048
"""Triples with one graph."""


class PlainHier:
    """The same triples and distances; both ancestors of each triple drawn by a Gumbel softmax."""

    def __init__(self, objective: em.Objective) -> None:
        self.objective, self.loss = objective, objective.loss

    def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        self.loss.hierarchy = self.hierarchy
        value = self.objective(embeddings, labels)
        del self.loss.hierarchy
        return value

    def hierarchy(self, to_proxies: Tensor, closeness: Tensor, weight: Tensor | None = None) -> Tensor:
        assert weight is None
        triples = self.loss.draw_triples(closeness, torch.ones_like(closeness[:, 0]))
        # A graph over the triples of one part at a time: that over all of them takes gigabytes.
        leaf, total = to_proxies.detach().requires_grad_(), 0.0
        for part in triples.split(PART, 1):
            value = self.triple_losses(leaf, part).sum() / triples.shape[1]
            value.backward()
            total += value.item()
        assert leaf.grad is not None
        return (to_proxies * leaf.grad).sum() + total - (to_proxies.detach() * leaf.grad).sum()

    def triple_losses(self, to_proxies: Tensor, triples: Tensor) -> Tensor:
        margin = self.loss.margin
        i, j, k = (to_proxies[rows] for rows in triples)
        lower, below = self.choose(torch.maximum(i, j))
        upper, above = self.choose(torch.maximum(torch.maximum(i, j), k))
        i, j, k = ((to * (lower - upper)).sum(1) for to in (i, j, k))
        return ((i + margin).relu() + (j + margin).relu() + (margin - k).relu()) * (below != above)

    def choose(self, distance: Tensor) -> tuple[Tensor, Tensor]:
        noise = -torch.empty_like(distance).exponential_().log()
        probs = (noise - distance / self.loss.tau).softmax(1)
        index = probs.argmax(1)
        return one_hot(index, probs.shape[1]) + probs - probs.detach(), index


class PlainPddm:
    """The scores of all pairs at once."""

    def __init__(self, objective: em.Objective) -> None:
        self.loss = objective.loss

    def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        x, loss = normalize(embeddings), self.loss
        difference = normalize(loss.difference((x[:, None] - x).abs()).relu(), dim=2)
        position = normalize(loss.position((x[:, None] + x) / 2).relu(), dim=2)
        scores = loss.readout(loss.joint(torch.cat([difference, position], 2)).relu())[..., 0]
        squared = (2 - 2 * x @ x.T).clamp_min(0)
        same, rows = labels[:, None] == labels, torch.arange(len(x))
        positive = scores.masked_fill(~same, torch.inf).fill_diagonal_(torch.inf).argmin(1)
        negative = scores.masked_fill(same, -torch.inf).argmax(1)

        def hinges(measure: Tensor, margin: float) -> Tensor:
            near, far, far_from_positive = (
                measure[rows, positive],
                measure[rows, negative],
                measure[positive, negative[positive]],
            )
            return ((margin + far - near).relu() + (margin + far_from_positive - near).relu()).mean()

        return hinges(scores, loss.a) + loss.lam * hinges(-squared, loss.b)


class PlainClustering:
    """Greedy medoids and five sweeps of PAM, with the contingency table of every candidate."""

    def __init__(self, objective: em.Objective) -> None:
        self.gamma = objective.loss.gamma

    def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        x = normalize(embeddings)
        distance = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
        self.d, self.y, self.k = distance.detach().double(), labels, int(labels.max()) + 1
        medoids = self.greedy()
        for _ in range(5):
            before, medoids = medoids, self.sweep(medoids)
            if medoids == before:
                break
        cluster = self.assign(torch.tensor([medoids]))
        within = (self.d * (labels[:, None] == labels)).sum(0)
        true = torch.stack([within.masked_fill(labels != label, torch.inf).argmin() for label in range(self.k)])
        rows = torch.arange(len(x))
        spread = distance[rows, true[labels]].sum() - distance[rows, torch.tensor(medoids)[cluster[0]]].sum()
        return (spread + self.gamma * self.delta(cluster)[0]).relu()

    def greedy(self) -> list[int]:
        medoids: list[int] = []
        for _ in range(self.k):
            trials = torch.tensor([[*medoids, candidate] for candidate in range(len(self.d))])
            energy = -self.d[:, trials].amin(2).sum(0)
            score = energy + self.gamma * self.delta(self.assign(trials))
            score[medoids] = -torch.inf
            medoids.append(int((score >= score.max() - 1e-12).nonzero()[0]))
        return medoids

    def sweep(self, medoids: list[int]) -> list[int]:
        cluster, medoids = self.assign(torch.tensor([medoids]))[0], [*medoids]
        for index in range(self.k):
            members = (cluster == index).nonzero()[:, 0]
            trials = torch.tensor(medoids).repeat(len(members), 1)
            trials[:, index] = members
            score = self.gamma * self.delta(self.assign(trials)) - self.d[members][:, members].sum(0)
            medoids[index] = int(members[(score >= score.max() - 1e-12).nonzero()[0]])
        return medoids

    def assign(self, trials: Tensor) -> Tensor:
        cluster = self.d[:, trials].movedim(0, 1).argmin(2)
        return cluster.scatter(1, trials, torch.arange(trials.shape[1]).expand_as(trials))

    def delta(self, cluster: Tensor) -> Tensor:
        """1 − NMI of (A, B) clusterings."""
        cells = torch.zeros(len(cluster), self.k * self.k, dtype=torch.float64)
        cells.scatter_add_(1, cluster * self.k + self.y, torch.ones_like(cluster, dtype=torch.float64))
        joint = cells.view(-1, self.k, self.k) / cluster.shape[1]

        def entropy(shares: Tensor) -> Tensor:
            return -torch.special.xlogy(shares, shares).flatten(1).sum(1)

        by_cluster, by_class = entropy(joint.sum(2)), entropy(joint.sum(1))
        information = by_cluster + by_class - entropy(joint)
        norm = (by_cluster * by_class).clamp_min(1e-12).sqrt()
        return 1 - torch.where(by_cluster > 1e-12, information / norm, 0.0)


PLAIN: dict[str, Callable[[em.Objective], Objective]] = {
    "hier": PlainHier,
    "pddm": PlainPddm,
    "structured_clustering": PlainClustering,
}


def compare(row: str, size: int, dimension: int, rounds: int) -> str:
    """Median milliseconds of the textbook and of ours, their ratio, and the difference of the values."""
    torch.manual_seed(0)
    embeddings, labels = batch(size, dimension)
    objective = em.objective(row, **({} if row == "structured_clustering" else {"dim": dimension}))
    sides: dict[str, Objective] = {"ours": objective, "plain": PLAIN[row](objective)}
    times: dict[str, list[float]] = {side: [] for side in sides}
    values = {}
    for round_index in range(rounds + 1):
        for side in sorted(sides, reverse=bool(round_index % 2)):
            torch.manual_seed(0)
            leaf = embeddings.detach().requires_grad_()
            start = time.process_time()
            value = sides[side](leaf, labels)
            value.backward()
            # The first of all rounds warms up.
            times[side] += [1000 * (time.process_time() - start)] if round_index else []
            values[side] = value.item()
    plain_ms, our_ms = (statistics.median(times[side]) for side in ("plain", "ours"))
    difference = abs(values["plain"] - values["ours"])
    return f"{row:<24}{plain_ms:>11.1f}{our_ms:>9.1f}{plain_ms / our_ms:>9.1f}{difference:>12.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(PLAIN), choices=PLAIN)
    parser.add_argument("--batch", type=int, nargs="+", default=[128])
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for size in args.batch:
        print(f"\nB = {size}, d = {args.dimension}, {args.rounds} rounds, 1 thread")
        print(f"{'':<24}{'textbook ms':>11}{'ours ms':>9}{'faster':>9}{'difference':>12}")
        for row in args.rows:
            print(compare(row, size, args.dimension, args.rounds), flush=True)


if __name__ == "__main__":
    main()
