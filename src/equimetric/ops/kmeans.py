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
    for index, label in enumerate(torch.unique(labels)):
        members = (labels == label).nonzero()[:, 0]
        result = kmeans(
            embeddings[members],
            min(clusters, len(members)),
            seed=derive_seed(seed, "class", index),
            iterations=iterations,
        )
        assigned[members] = result.assignment
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
    points: Tensor, clusters: int, *, seed: int = 0, iterations: int = 20, n_init: int = 1, spherical: bool = False
) -> KMeansResult:
    """Lloyd's algorithm from greedy k-means++ seeds, until nothing changes or for the given number of iterations.

    points      (N, D) float32 or float64
    clusters    k
    n_init      number of runs from different seeds; the smallest inertia wins
    spherical   project the centres onto the unit sphere, for cosine; the points must be unit vectors

    A cluster that loses its last point takes the point farthest from its centre, among those that are not the closest
    of their own cluster (ties by lower index).
    """
    if not 1 <= clusters <= len(points):
        raise EquimetricError(f"{len(points)} points cannot form {clusters} clusters; ask for 1 to {len(points)}")
    for name, value in (("iterations", iterations), ("n_init", n_init)):
        if value < 1:
            raise EquimetricError(f"{name} is {value}; k-means needs at least 1")
    with torch.no_grad(), disable_reduced_precision(points.device):
        squared_norms = _squared_norms(points)
        results = [
            lloyd(
                points,
                _init_seeds(points, squared_norms, clusters, run_seed),
                iterations=iterations,
                spherical=spherical,
                squared_norms=squared_norms,
            )
            for run_seed in (seed, *(derive_seed(seed, "start", start) for start in range(1, n_init)))
        ]
    return min(results, key=lambda run: run.inertia)


@torch.no_grad()
def lloyd(
    points: Tensor, seeds: Tensor, *, iterations: int, spherical: bool, squared_norms: Tensor | None = None
) -> KMeansResult:
    """Lloyd's algorithm from the points at these indices (k,): see `kmeans`."""
    if squared_norms is None:
        squared_norms = _squared_norms(points)
    centres = points[seeds]
    assignment, squared_distance = _assign_points(points, squared_norms, centres)
    n_iter, converged = 0, False
    while n_iter < iterations and not converged:
        previous = assignment
        centres = _compute_means(points, assignment, len(seeds), spherical)
        assignment, squared_distance = _assign_points(points, squared_norms, centres)
        n_iter, converged = n_iter + 1, bool((assignment == previous).all())
    return KMeansResult(assignment, centres, float(squared_distance.sum()), n_iter, converged)


def _squared_norms(points: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(points, dim=1, dtype=torch.float64)
    return norms.square()


def _init_seeds(points: Tensor, squared_norms: Tensor, clusters: int, seed: int) -> Tensor:
    """Select the indices (k,) of greedy k-means++ seeds in blocks.

    Candidates are drawn ∝ D², the squared distance to the nearest seed; of 2 + ln k of them, the one that lowers Σ D²
    most becomes a seed.
    """
    generator = np.random.default_rng(derive_seed(seed, "k-means++"))
    trials = 2 + int(math.log(clusters))
    new_seeds = generator.integers(len(points), size=1)
    seeds = new_seeds
    nearest = torch.full_like(squared_norms, torch.inf)
    while len(seeds) < clusters:
        _, closeness = _nearest_centres(points, points[new_seeds])
        torch.minimum(nearest, (squared_norms - 2 * closeness).clamp(min=0), out=nearest)
        # Exactly 0, so that rounding never lets a seed be drawn again.
        nearest[seeds] = 0
        if not nearest.any():
            # Every point equals a seed: any other points will do.
            others = np.setdiff1d(np.arange(len(points)), seeds)
            return torch.from_numpy(np.concatenate([seeds, others[: clusters - len(seeds)]]))
        block = min(max(1, len(seeds) // BLOCK_SHARE), clusters - len(seeds))
        candidates = _draw_indices(nearest.cpu().numpy(), (block, trials), generator)
        gains = _compute_gains(points, squared_norms, nearest, candidates.ravel()).reshape(block, trials)
        best = np.take_along_axis(candidates, gains.argmax(axis=1)[:, None], axis=1).squeeze(1)
        new_seeds = _accept_candidates(points, nearest.cpu().numpy(), best, generator)
        seeds = np.concatenate([seeds, new_seeds])
    return torch.from_numpy(seeds)


def _draw_indices(weight: Floats, shape: tuple[int, ...], generator: np.random.Generator) -> Integers:
    """Draw indices with probability ∝ weight, with replacement."""
    cumulative = np.cumsum(weight)
    indices: Integers = np.searchsorted(cumulative, cumulative[-1] * generator.random(shape), side="right")
    return indices


def _compute_gains(points: Tensor, squared_norms: Tensor, nearest: Tensor, candidates: Integers) -> Floats:
    """Compute by how much each candidate c would lower Σ D²: Σ_x [D²(x) − ‖x − c‖²]₊."""
    centres = points[candidates]
    min_closeness = ((squared_norms - nearest) / 2).to(points.dtype)
    gains = torch.zeros(len(centres), dtype=torch.float64, device=points.device)
    for rows, closeness in _closeness_tiles(points, centres):
        gains += 2 * closeness.sub_(min_closeness[rows, None]).clamp_(min=0).sum(dim=0)
    return gains.cpu().numpy()


def _accept_candidates(
    points: Tensor, weight: Floats, candidates: Integers, generator: np.random.Generator
) -> Integers:
    """Accept candidates that remain likely given those accepted before them; always the first.

    A candidate whose D² has fallen to D²′ is accepted with probability D²′/D². Candidates drawn ∝ D² are then
    distributed as if drawn one after the other.
    """
    # A repeated candidate has distance zero from itself, so it is never accepted twice.
    candidates = candidates[np.sort(np.unique(candidates, return_index=True)[1])]
    vectors = points[candidates].double()
    squared_distance = torch.cdist(vectors, vectors).square().cpu().numpy()
    initial = weight[candidates]
    remaining = initial.copy()
    accepted = []
    for index, threshold in enumerate(generator.random(len(candidates))):
        if threshold * initial[index] < remaining[index]:
            accepted.append(candidates[index])
            np.minimum(remaining, squared_distance[index], out=remaining)
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
    max_closeness = torch.empty(len(points), dtype=torch.float64, device=points.device)
    for rows, closeness in _closeness_tiles(points, centres):
        torch.argmax(closeness, dim=1, out=nearest[rows])
        max_closeness[rows] = closeness.gather(1, nearest[rows, None]).squeeze(1).double()
    return nearest, max_closeness


def _assign_points(points: Tensor, squared_norms: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The cluster of every point (N,), no cluster empty, and the squared distance to its centre (N,)."""
    assignment, closeness = _nearest_centres(points, centres)
    squared_distance = (squared_norms - 2 * closeness).clamp(min=0)
    _fill_empty_clusters(assignment, squared_distance, len(centres))
    return assignment, squared_distance


def _compute_means(points: Tensor, assignment: Tensor, clusters: int, spherical: bool) -> Tensor:
    """The mean of each cluster (k, D), for `spherical` its direction."""
    means = sum_by_group(points, assignment, clusters) / assignment.bincount(minlength=clusters)[:, None]
    return (normalize(means, dim=1) if spherical else means).to(points.dtype)


def _fill_empty_clusters(assignment: Tensor, squared_distance: Tensor, clusters: int) -> None:
    """Give each empty cluster one of the farthest points, in place; every other cluster keeps its closest point."""
    empty = (assignment.bincount(minlength=clusters) == 0).nonzero().flatten()
    if not len(empty):
        return
    order = squared_distance.argsort(stable=True)
    closest_rank = torch.full((clusters,), len(assignment), device=assignment.device)
    closest_rank.scatter_reduce_(0, assignment[order], torch.arange(len(order), device=order.device), "amin")
    candidates = squared_distance.clone()
    candidates[order[closest_rank[closest_rank < len(order)]]] = -1
    farthest = candidates.argsort(descending=True, stable=True)[: len(empty)]
    assignment[farthest] = empty
    squared_distance[farthest] = 0
