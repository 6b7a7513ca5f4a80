"""Exact k-means: Lloyd's algorithm from greedy k-means++ seeds, deterministic for a seed.

Distances come from full-precision products, ties go to the lower index, no cluster ends empty, and the best of several
starts is kept. The result depends on the points and the seed alone.

A pass is one matrix product, points × centres, in tiles of bounded memory. Seeding is greedy k-means++: every seed is
the best of 2 + ln k candidates. Candidates are drawn and compared in blocks, as matrix products too: the seeds of a
block are chosen by what is known at its beginning, and accepted with the probability that the other seeds of the block
leave them. Seeding costs about 2 ln k passes; Lloyd's algorithm alone does not make up for bad seeds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from equimetric.errors import EquimetricError
from equimetric.ops.blocks import TILE_BYTES, disable_reduced_precision, slices, sum_by_group
from equimetric.seeding import derive_seed

__all__ = ["KMeansResult", "cluster_within_classes", "kmeans", "lloyd"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK_SHARE = 32
"""A block adds one seed per this many existing ones: in a small block, seeds are rarely close to each other."""


@torch.no_grad()
def cluster_within_classes(
    embeddings: Tensor, labels: Tensor, clusters: int, *, iterations: int = 50, generator: torch.Generator | None = None
) -> Tensor:
    """(N,) the cluster of each sample among those of its class.

    Draws its seed from torch's global generator unless given another. A class of fewer samples has as many clusters as
    samples.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    assigned = torch.zeros_like(labels)
    for number, label in enumerate(torch.unique(labels)):
        members = (labels == label).nonzero()[:, 0]
        found = kmeans(
            embeddings[members],
            min(clusters, len(members)),
            seed=derive_seed(seed, "class", number),
            iterations=iterations,
        )
        assigned[members] = found.assignment
    return assigned


@dataclass(frozen=True)
class KMeansResult:
    """The result of k-means.

    assignment  (N,) int64, the cluster of every point; no cluster is empty
    centres     (k, D), the means of the last assignment
    inertia     sum of the squared distances to the assigned centres
    iterations  number of updates of the centres
    converged   whether the last update changed no assignment
    """

    assignment: Tensor
    centres: Tensor
    inertia: float
    iterations: int
    converged: bool


def kmeans(
    points: Tensor, clusters: int, *, seed: int = 0, iterations: int = 20, starts: int = 1, spherical: bool = False
) -> KMeansResult:
    """Lloyd's algorithm from greedy k-means++ seeds, until nothing changes or for the given number of iterations.

    points      (N, D) float32 or float64
    clusters    k
    starts      number of runs from different seeds; the smallest inertia wins
    spherical   project the centres onto the unit sphere, for cosine; the points must be unit vectors

    A cluster that loses its last point takes the point farthest from its centre, among those that are not the closest
    of their own cluster (ties by lower index).
    """
    if not 1 <= clusters <= len(points):
        raise EquimetricError(f"{len(points)} points cannot form {clusters} clusters; ask for 1 to {len(points)}")
    for name, number in (("iterations", iterations), ("starts", starts)):
        if number < 1:
            raise EquimetricError(f"{name} is {number}; k-means needs at least 1")
    with torch.no_grad(), disable_reduced_precision(points.device):
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
) -> KMeansResult:
    """Lloyd's algorithm from the points at these indices (k,): see `kmeans`."""
    if squared_lengths is None:
        squared_lengths = _squared_lengths(points)
    centres = points[seeds]
    assignment, squared_distance = _assign(points, squared_lengths, centres)
    moved, converged = 0, False
    while moved < iterations and not converged:
        before = assignment
        centres = _means(points, assignment, len(seeds), spherical)
        assignment, squared_distance = _assign(points, squared_lengths, centres)
        moved, converged = moved + 1, bool((assignment == before).all())
    return KMeansResult(assignment, centres, float(squared_distance.sum()), moved, converged)


def _squared_lengths(points: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(points, dim=1, dtype=torch.float64)
    return lengths.square()


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
        # Exactly 0, so that rounding never lets a seed be drawn again.
        nearest[chosen] = 0
        if not nearest.any():
            # Every point equals a seed: any other points will do.
            others = np.setdiff1d(np.arange(len(points)), chosen)
            return torch.from_numpy(np.concatenate([chosen, others[: clusters - len(chosen)]]))
        block = min(max(1, len(chosen) // BLOCK_SHARE), clusters - len(chosen))
        candidates = _draw(nearest.cpu().numpy(), (block, trials), generator)
        gains = _gains(points, squared_lengths, nearest, candidates.ravel()).reshape(block, trials)
        best = np.take_along_axis(candidates, gains.argmax(axis=1)[:, None], axis=1).squeeze(1)
        fresh = _accept(points, nearest.cpu().numpy(), best, generator)
        chosen = np.concatenate([chosen, fresh])
    return torch.from_numpy(chosen)


def _draw(weight: Floats, shape: tuple[int, ...], generator: np.random.Generator) -> Integers:
    """Draw indices with probability ∝ weight, with replacement."""
    cumulative = np.cumsum(weight)
    indices: Integers = np.searchsorted(cumulative, cumulative[-1] * generator.random(shape), side="right")
    return indices


def _gains(points: Tensor, squared_lengths: Tensor, nearest: Tensor, candidates: Integers) -> Floats:
    """By how much each candidate c would lower Σ D²: Σ_x [D²(x) − ‖x − c‖²]₊."""
    centres = points[candidates]
    least_closeness = ((squared_lengths - nearest) / 2).to(points.dtype)
    gains = torch.zeros(len(centres), dtype=torch.float64, device=points.device)
    for rows, closeness in _closeness_tiles(points, centres):
        gains += 2 * closeness.sub_(least_closeness[rows, None]).clamp_(min=0).sum(dim=0)
    return gains.cpu().numpy()


def _accept(points: Tensor, weight: Floats, candidates: Integers, generator: np.random.Generator) -> Integers:
    """The candidates that stay likely given those accepted before them; always the first.

    A candidate whose D² has fallen to D²′ is accepted with probability D²′/D². Candidates drawn ∝ D² are then
    distributed as if drawn one after the other.
    """
    # A repeated candidate has distance zero from itself, so it is never accepted twice.
    candidates = candidates[np.sort(np.unique(candidates, return_index=True)[1])]
    vectors = points[candidates].double()
    squared_distance = torch.cdist(vectors, vectors).square().cpu().numpy()
    before = weight[candidates]
    now = before.copy()
    accepted = []
    for index, chance in enumerate(generator.random(len(candidates))):
        if chance * before[index] < now[index]:
            accepted.append(candidates[index])
            np.minimum(now, squared_distance[index], out=now)
    return np.array(accepted)


def _closeness_tiles(points: Tensor, centres: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Rows of points, and their closeness ⟨x, c⟩ − ‖c‖²/2 to all centres: ‖x − c‖² = ‖x‖² − 2·closeness.

    All tiles share one buffer: fresh memory would cost as much as the computation.
    """
    offset = torch.linalg.vector_norm(centres, dim=1, dtype=torch.float64).square().div(-2).to(points.dtype)
    step = min(len(points), max(1, TILE_BYTES // (len(centres) * points.element_size())))
    tile = points.new_empty(step, len(centres))
    for rows in slices(len(points), step):
        yield rows, torch.addmm(offset, points[rows], centres.T, out=tile[: rows.stop - rows.start])


def _nearest_centres(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centre, ties by lower index, (N,), and the closeness to it, (N,) float64."""
    nearest = torch.empty(len(points), dtype=torch.int64, device=points.device)
    largest = torch.empty(len(points), dtype=torch.float64, device=points.device)
    for rows, closeness in _closeness_tiles(points, centres):
        torch.argmax(closeness, dim=1, out=nearest[rows])
        largest[rows] = closeness.gather(1, nearest[rows, None]).squeeze(1).double()
    return nearest, largest


def _assign(points: Tensor, squared_lengths: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The cluster of every point (N,), no cluster empty, and the squared distance to its centre (N,)."""
    assignment, closeness = _nearest_centres(points, centres)
    squared_distance = (squared_lengths - 2 * closeness).clamp(min=0)
    _fill_empty_clusters(assignment, squared_distance, len(centres))
    return assignment, squared_distance


def _means(points: Tensor, assignment: Tensor, clusters: int, spherical: bool) -> Tensor:
    """The mean of each cluster (k, D), for `spherical` its direction."""
    means = sum_by_group(points, assignment, clusters) / assignment.bincount(minlength=clusters)[:, None]
    return (normalize(means, dim=1) if spherical else means).to(points.dtype)


def _fill_empty_clusters(assignment: Tensor, squared_distance: Tensor, clusters: int) -> None:
    """Give each empty cluster one of the farthest points, in place; every other cluster keeps its closest point."""
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
