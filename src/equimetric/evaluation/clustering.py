"""Clustering metrics: how well k-means, told only the number of classes, finds the classes again.

k-means is Lloyd's, on the vectors as the geometry has them; for cosine they are unit vectors, and so are the centres,
unless Euclidean means are asked for. A pass is one matrix product, points × centres, in tiles of bounded memory. It
starts from greedy k-means++: every seed is the best of 2 + ln k candidates. They are drawn and judged in blocks, as
matrix products too: the seeds of a block are chosen by what was known at its beginning, and taken with the probability
that their neighbours within the block have left them. They cost as much as some 2 ln k passes; Lloyd's algorithm alone
would not make up for bad seeds.

The metrics are functions of the contingency table of classes and clusters, of which only entries above zero are held.
With a separate gallery it is the queries that are clustered.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.exact import slices
from equimetric.evaluation.families import Collector, Evidence, MetricFamily, Score
from equimetric.evaluation.scan import TILE_BYTES, full_precision
from equimetric.seeding import derive_seed

__all__ = [
    "Clusters",
    "Contingency",
    "KMeans",
    "adjusted_mutual_information",
    "expected_information",
    "kmeans",
    "lloyd",
    "normalized_mutual_information",
    "pairwise_f1",
    "sums_by_group",
]

Array = NDArray[np.float64]
Average = Literal["arithmetic", "geometric"]
BLOCK_SHARE = 32
"""A block of seeds is this part of the seeds there are: seeds of so small a block seldom meet."""
EXPECTATION_TERMS = 2**20
STARTS, FEW = 10, 2**20
"""Up to so many products of points and clusters, k-means begins ten times and the best is kept."""


@dataclass(frozen=True)
class KMeans:
    """A finished k-means.

    assignment  (N,) int64, the cluster of every point; every cluster has at least one
    centres     (k, D), the means the points were last assigned to
    inertia     sum of the squared distances to the assigned centres
    iterations  how often the centres were moved
    converged   whether the last time changed nothing
    """

    assignment: Tensor
    centres: Tensor
    inertia: float
    iterations: int
    converged: bool


def kmeans(
    points: Tensor, clusters: int, *, seed: int = 0, iterations: int = 20, starts: int = 1, spherical: bool = False
) -> KMeans:
    """Lloyd's algorithm from greedy k-means++ seeds, until nothing changes or for the given number of iterations.

    points      (N, D) float32 or float64
    clusters    how many, k
    starts      how often to begin, from other seeds; the smallest inertia wins
    spherical   project the centres onto the unit sphere, as cosine demands; the points must be unit vectors

    A cluster that loses its last point takes the worst-placed point of all that are not the best of their own cluster
    (equal ones by lower index).
    """
    if not 1 <= clusters <= len(points):
        raise EquimetricError(f"{len(points)} points cannot form {clusters} clusters; ask for 1 to {len(points)}")
    for name, number in (("iterations", iterations), ("starts", starts)):
        if number < 1:
            raise EquimetricError(f"{name} is {number}; k-means needs at least 1")
    with torch.no_grad(), full_precision(points.device):
        squared_lengths = _squared_lengths(points)
        found = [
            lloyd(
                points,
                _seeds(points, squared_lengths, clusters, one),
                iterations=iterations,
                spherical=spherical,
                squared_lengths=squared_lengths,
            )
            for one in (seed, *(derive_seed(seed, "start", start) for start in range(1, starts)))
        ]
    return min(found, key=lambda run: run.inertia)


@torch.no_grad()
def lloyd(
    points: Tensor, seeds: Tensor, *, iterations: int, spherical: bool, squared_lengths: Tensor | None = None
) -> KMeans:
    """Lloyd's algorithm from the points at these indices (k,): see `kmeans`."""
    if squared_lengths is None:
        squared_lengths = _squared_lengths(points)
    centres = points[seeds]
    assignment, squared_distance = _assigned(points, squared_lengths, centres)
    moved, converged = 0, False
    while moved < iterations and not converged:
        before = assignment
        centres = _means(points, assignment, len(seeds), spherical)
        assignment, squared_distance = _assigned(points, squared_lengths, centres)
        moved, converged = moved + 1, bool((assignment == before).all())
    return KMeans(assignment, centres, float(squared_distance.sum()), moved, converged)


def _squared_lengths(points: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(points, dim=1, dtype=torch.float64)
    return lengths.square()


def _by_closeness_to_the_mean(points: Tensor) -> Tensor:
    """(N,) the points by their product with the mean of all, which neither their order nor a rotation changes."""
    mean = sums_by_group(points, torch.zeros(len(points), dtype=torch.int64, device=points.device), 1)[0]
    return torch.mv(points, mean.to(points.dtype)).argsort(stable=True)


def sums_by_group(vectors: Tensor, group: Tensor, groups: int, *, unit: bool = False) -> Tensor:
    """Σ of the vectors (N, D) of each group (N,), or of their directions, in float64: (groups, D)."""
    sums = torch.zeros(groups, vectors.shape[1], dtype=torch.float64, device=vectors.device)
    # Large blocks: each costs a pass over all sums as well.
    for rows in slices(len(vectors), max(1, TILE_BYTES // (8 * vectors.shape[1]))):
        exact = vectors[rows].double()
        sums.index_add_(0, group[rows], normalize(exact, dim=1) if unit else exact)
    return sums


@dataclass(frozen=True)
class Contingency:
    """How many points of each class lie in each cluster: n_uv, of which only entries above zero are held.

    counts (E,), in_class (E,), in_cluster (E,): the entries and where they stand
    class_sizes a_u and cluster_sizes b_v: the sums of rows and columns, empty ones left out
    """

    counts: NDArray[np.int64]
    in_class: NDArray[np.int64]
    in_cluster: NDArray[np.int64]
    class_sizes: NDArray[np.int64]
    cluster_sizes: NDArray[np.int64]

    @classmethod
    def of(cls, classes: Tensor | NDArray[Any], clusters: Tensor | NDArray[Any]) -> "Contingency":
        """The table of two partitions (N,) of the same points; what the parts are called does not matter."""
        if len(classes) != len(clusters) or not len(classes):
            raise EquimetricError(
                f"there are {len(classes)} classes but {len(clusters)} clusters of points; give one of each for every "
                "point, and at least one point"
            )
        _, row, class_sizes = np.unique(np.asarray(classes), return_inverse=True, return_counts=True)
        _, column, cluster_sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
        place, counts = np.unique(row * len(cluster_sizes) + column, return_counts=True)
        return cls(counts, place // len(cluster_sizes), place % len(cluster_sizes), class_sizes, cluster_sizes)

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

    The norm is the mean (H_classes + H_clusters)/2 of the entropies, or for `geometric` √(H_classes·H_clusters). One
    part on both sides is worth 1, on one side 0.
    """
    if table.identical:
        return 1.0
    norm = _average_entropy(table, average)
    return _information(table) / norm if norm > 0 else 0.0


def adjusted_mutual_information(table: Contingency, average: Average = "arithmetic") -> float:
    """AMI = (I − E[I]) / (norm − E[I]), where E[I] is what random partitions with the same sizes would share."""
    if table.identical:
        return 1.0
    if min(len(table.class_sizes), len(table.cluster_sizes)) == 1:
        return 0.0
    expected = expected_information(table.class_sizes, table.cluster_sizes)
    return (_information(table) - expected) / (_average_entropy(table, average) - expected)


def pairwise_f1(table: Contingency) -> float:
    """F1 = 2PR/(P + R) over unordered pairs of points: P of those in one cluster, R of those in one class.

    With Σ C(n_uv, 2) pairs that are both, this is 2·both / (in one cluster + in one class). 1 where there is no pair of
    either kind.
    """
    both, in_class, in_cluster = map(_pairs, (table.counts, table.class_sizes, table.cluster_sizes))
    return 2 * both / (in_class + in_cluster) if in_class + in_cluster else 1.0


class Clusters(Collector):
    """k-means of the queries into as many clusters as they have classes, as often as asked."""

    reads_tiles = False

    def finish(self) -> None:
        """Cluster, each run from a seed of its own."""
        runs = self.options["clustering_runs"]
        if runs < 1:
            raise EquimetricError(f"clustering_runs is {runs}; the clustering metrics need at least 1")
        # In an order of the points' own, so that the order in which they were given changes nothing.
        order = _by_closeness_to_the_mean(self.sets.queries)
        points, classes = self.sets.queries[order], self.sets.query_classes[order].cpu()
        clusters = int((classes.bincount() > 0).sum())
        spherical, starts = self.options["clustering_spherical"], self.options["clustering_starts"]
        self.runs = [
            kmeans(
                points,
                clusters,
                seed=derive_seed(self.options["clustering_seed"], "run", run),
                iterations=self.options["clustering_iterations"],
                starts=(STARTS if len(points) * clusters <= FEW else 1) if starts is None else starts,
                spherical=self.sets.geometry == "cosine" if spherical is None else spherical,
            )
            for run in range(runs)
        ]
        self.tables = [Contingency.of(classes, run.assignment.cpu()) for run in self.runs]
        self.assignments = [torch.empty_like(run.assignment).scatter_(0, order, run.assignment) for run in self.runs]


def _mean_over_runs(metric: Callable[[Contingency], float]) -> Callable[[re.Match[str], Evidence], Score]:
    def score(_: re.Match[str], evidence: Evidence) -> Score:
        found = evidence[Clusters]
        clustering = {
            "clusters": np.stack([assignment.cpu().numpy() for assignment in found.assignments]),
            "iterations": [run.iterations for run in found.runs],
            "converged": [run.converged for run in found.runs],
        }
        return Score(math.fsum(map(metric, found.tables)) / len(found.tables), details={"clustering": clustering})

    return score


def _family(name: str, metric: Callable[[Contingency], float]) -> MetricFamily:
    options = {
        "clustering_runs": 1,
        "clustering_seed": 0,
        "clustering_iterations": 20,
        "clustering_starts": None,
        "clustering_spherical": None,
    }
    return MetricFamily(name, (name,), (Clusters,), _mean_over_runs(metric), options)


FAMILIES: tuple[MetricFamily, ...] = (
    _family("nmi", normalized_mutual_information),
    _family("nmi_geometric", lambda table: normalized_mutual_information(table, "geometric")),
    _family("ami", adjusted_mutual_information),
    _family("f1", pairwise_f1),
)


def _seeds(points: Tensor, squared_lengths: Tensor, clusters: int, seed: int) -> Tensor:
    """Indices (k,) of greedy k-means++, chosen in blocks.

    Candidates are drawn ∝ D², the squared distance to the nearest seed; of 2 + ln k of them, the one that lowers Σ D²
    most becomes a seed.
    """
    generator = np.random.default_rng(derive_seed(seed, "k-means++"))
    trials = 2 + int(math.log(clusters))
    fresh = generator.integers(len(points), size=1)
    chosen = fresh
    nearest = torch.full_like(squared_lengths, torch.inf)
    while len(chosen) < clusters:
        _, closeness = _nearest_centres(points, points[fresh])
        torch.minimum(nearest, (squared_lengths - 2 * closeness).clamp(min=0), out=nearest)
        # Exactly, so that rounding never lets a seed be drawn again.
        nearest[chosen] = 0
        if not nearest.any():
            # Every point equals a seed: any others are as good.
            others = np.setdiff1d(np.arange(len(points)), chosen)
            return torch.from_numpy(np.concatenate([chosen, others[: clusters - len(chosen)]]))
        block = min(max(1, len(chosen) // BLOCK_SHARE), clusters - len(chosen))
        candidates = _drawn(nearest.cpu().numpy(), (block, trials), generator)
        gains = _gains(points, squared_lengths, nearest, candidates.ravel()).reshape(block, trials)
        best = np.take_along_axis(candidates, gains.argmax(axis=1)[:, None], axis=1).squeeze(1)
        fresh = _accepted(points, nearest.cpu().numpy(), best, generator)
        chosen = np.concatenate([chosen, fresh])
    return torch.from_numpy(chosen)


def _drawn(weight: Array, shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.int64]:
    """Indices drawn with probability ∝ weight, with replacement."""
    cumulative = np.cumsum(weight)
    places: NDArray[np.int64] = np.searchsorted(cumulative, cumulative[-1] * generator.random(shape), side="right")
    return places


def _gains(points: Tensor, squared_lengths: Tensor, nearest: Tensor, candidates: NDArray[np.int64]) -> Array:
    """By how much each candidate c would lower Σ D²: Σ_x [D²(x) − ‖x − c‖²]₊."""
    centres = points[candidates]
    least_closeness = ((squared_lengths - nearest) / 2).to(points.dtype)
    gains = torch.zeros(len(centres), dtype=torch.float64, device=points.device)
    for rows, closeness in _closeness_tiles(points, centres):
        gains += 2 * closeness.sub_(least_closeness[rows, None]).clamp_(min=0).sum(dim=0)
    return gains.cpu().numpy()


def _accepted(
    points: Tensor, weight: Array, candidates: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """The candidates that remain likely beside those accepted before them; always the first.

    One whose D² has meanwhile fallen to D²′ is accepted with probability D²′/D². Candidates drawn ∝ D² are then
    distributed as if they had been drawn one by one.
    """
    # A candidate that comes again is at distance zero of itself: never accepted twice.
    candidates = candidates[np.sort(np.unique(candidates, return_index=True)[1])]
    vectors = points[candidates].double()
    squared_distance = torch.cdist(vectors, vectors).square().cpu().numpy()
    before = weight[candidates]
    now = before.copy()
    accepted = []
    for place, chance in enumerate(generator.random(len(candidates))):
        if chance * before[place] < now[place]:
            accepted.append(candidates[place])
            np.minimum(now, squared_distance[place], out=now)
    return np.array(accepted)


def _closeness_tiles(points: Tensor, centres: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Rows of points, and their closeness ⟨x, c⟩ − ‖c‖²/2 to all centres: ‖x − c‖² = ‖x‖² − 2·closeness.

    One tile is used again and again: fresh memory would cost as much as what is done with it.
    """
    offset = torch.linalg.vector_norm(centres, dim=1, dtype=torch.float64).square().div(-2).to(points.dtype)
    step = min(len(points), max(1, TILE_BYTES // (len(centres) * points.element_size())))
    tile = points.new_empty(step, len(centres))
    for rows in slices(len(points), step):
        yield rows, torch.addmm(offset, points[rows], centres.T, out=tile[: rows.stop - rows.start])


def _nearest_centres(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest of the centres, equal ones by lower index, (N,), and the closeness to it, (N,) float64."""
    nearest = torch.empty(len(points), dtype=torch.int64, device=points.device)
    largest = torch.empty(len(points), dtype=torch.float64, device=points.device)
    for rows, closeness in _closeness_tiles(points, centres):
        torch.argmax(closeness, dim=1, out=nearest[rows])
        largest[rows] = closeness.gather(1, nearest[rows, None]).squeeze(1).double()
    return nearest, largest


def _assigned(points: Tensor, squared_lengths: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The cluster of every point (N,), none of them empty, and the squared distance to its centre (N,)."""
    assignment, closeness = _nearest_centres(points, centres)
    squared_distance = (squared_lengths - 2 * closeness).clamp(min=0)
    _fill_empty_clusters(assignment, squared_distance, len(centres))
    return assignment, squared_distance


def _means(points: Tensor, assignment: Tensor, clusters: int, spherical: bool) -> Tensor:
    """The mean of each cluster (k, D), for `spherical` its direction."""
    means = sums_by_group(points, assignment, clusters) / assignment.bincount(minlength=clusters)[:, None]
    return (normalize(means, dim=1) if spherical else means).to(points.dtype)


def _fill_empty_clusters(assignment: Tensor, squared_distance: Tensor, clusters: int) -> None:
    """Give each empty cluster one of the worst-placed points, in place; every other cluster keeps its best point."""
    empty = (assignment.bincount(minlength=clusters) == 0).nonzero().flatten()
    if not len(empty):
        return
    order = squared_distance.argsort(stable=True)
    place_of_best = torch.full((clusters,), len(assignment), device=assignment.device)
    place_of_best.scatter_reduce_(0, assignment[order], torch.arange(len(order), device=order.device), "amin")
    misplaced = squared_distance.clone()
    misplaced[order[place_of_best[place_of_best < len(order)]]] = -1
    moved = misplaced.argsort(descending=True, stable=True)[: len(empty)]
    assignment[moved] = empty
    squared_distance[moved] = 0


def _pairs(counts: NDArray[np.int64]) -> int:
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


def expected_information(class_sizes: NDArray[np.int64], cluster_sizes: NDArray[np.int64]) -> float:
    """E[I] over random partitions with these sizes a_u and b_v, where n_uv is hypergeometric.

    E[I] = Σ_u Σ_v Σ_s s/n · log(n·s / (a_u·b_v)) · P(n_uv = s),
    P(n_uv = s) = a_u! b_v! (n−a_u)! (n−b_v)! / (n! s! (a_u−s)! (b_v−s)! (n−a_u−b_v+s)!).
    The inner sum depends on the two sizes alone: it is taken once for each pair of different sizes.
    """
    n = int(class_sizes.sum())
    log_factorial = torch.lgamma(torch.arange(1, n + 2, dtype=torch.float64)).numpy()
    cluster_sizes, cluster_times = np.unique(cluster_sizes, return_counts=True)
    expected = 0.0
    for a, times in zip(*np.unique(class_sizes, return_counts=True), strict=True):
        for some in slices(len(cluster_sizes), max(1, EXPECTATION_TERMS // int(a))):
            b = cluster_sizes[some, None]
            s = np.arange(1, min(a, b.max()) + 1)
            possible = (s <= b) & (s >= a + b - n)
            b_alone, neither = np.maximum(b - s, 0), np.maximum(n - a - b + s, 0)
            log_ways = log_factorial[a] + log_factorial[b] + log_factorial[n - a] + log_factorial[n - b]
            log_ways = log_ways - log_factorial[s] - log_factorial[a - s] - log_factorial[b_alone]
            probability = np.exp(np.where(possible, log_ways - log_factorial[neither] - log_factorial[n], -np.inf))
            summed = (s / n * np.log(s * (n / a) / b) * probability).sum(axis=1)
            expected += times * float(cluster_times[some] @ summed)
    return expected
