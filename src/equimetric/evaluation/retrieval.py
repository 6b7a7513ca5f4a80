"""Retrieval metrics by exact nearest-neighbour search.

`relevance` (Q, k) says which of a query's k nearest gallery items are of its class, `relevant` (Q,) is R, the number of
such items in the whole gallery; every metric is a pure function of the two.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.inputs import GivenEmbeddings, GivenLabels, LabelledSets, labelled_sets
from equimetric.evaluation.nearest import nearest
from equimetric.evaluation.result import Evaluation
from equimetric.evaluation.scan import Comparison, Tile, scan

__all__ = ["evaluate", "map_at_r", "r_precision", "recall_at"]


def recall_at(relevance: Tensor, k: int) -> Tensor:
    """1 if any of the first K items is relevant, else 0; (Q,). Not the fraction of the relevant items found."""
    return relevance[:, :k].any(dim=1).double()


def r_precision(relevance: Tensor, relevant: Tensor) -> Tensor:
    """(1/R) Σ_{r≤R} rel_r; 0 where R = 0; (Q,)."""
    return _within_r(relevance, relevant).sum(dim=1) / relevant.clamp(min=1).double()


def map_at_r(relevance: Tensor, relevant: Tensor) -> Tensor:
    """(1/R) Σ_{r≤R} rel_r · precision@r, where precision@r = (Σ_{t≤r} rel_t) / r; 0 where R = 0; (Q,)."""
    hits = _within_r(relevance, relevant)
    precision = hits.cumsum(dim=1) / _ranks(relevance).double()
    return (hits * precision).sum(dim=1) / relevant.clamp(min=1)


def evaluate(
    embeddings: GivenEmbeddings,
    labels: GivenLabels,
    gallery_embeddings: GivenEmbeddings | None = None,
    gallery_labels: GivenLabels | None = None,
    *,
    metrics: Iterable[str] | None = None,
    ks: Iterable[int] = (1, 2, 4, 8),
    normalize: bool = True,
    lone: Literal["exclude", "zero"] = "exclude",
    block_rows: int | None = None,
    neighbours: int = 0,
    progress: bool = False,
) -> Evaluation:
    """How well nearest neighbours in an embedding space share their class.

    Every query is ranked against the whole gallery, exactly: by similarity, ties by lower gallery index. Without a
    gallery the embeddings are their own, and each query is left out of its own ranking by index, so that duplicates of
    it count. The result depends on neither block size nor number of threads.

    embeddings    (N, D) tensor or array; half precision is computed in float32, float64 in float64
    labels        N integers of any type and size, or N strings
    gallery_…     (G, D) and G labels, where queries and gallery are different sets
    metrics       names out of `recall@K` for any K, `precision@1`, `r_precision`, `map@r`; default: all of them
    ks            the K of the default's `recall@K`
    normalize     compare by cosine; otherwise by the inner product of the embeddings as they are
    lone          queries without a relevant gallery item: `exclude` them from the means, or count them as `zero`
    block_rows    queries compared at a time; memory is block_rows × G; default: 64 MB
    neighbours    keep the gallery indices of this many nearest items of each query (all, where there are fewer)
    progress      show a progress bar on standard error
    """
    chosen = _chosen_metrics(metrics, ks)
    if lone not in ("exclude", "zero"):
        raise unknown_name("treatment of lone queries", lone, ["exclude", "zero"])
    if block_rows is not None and block_rows < 1:
        raise EquimetricError(f"block_rows is {block_rows}; give at least 1, or None to let memory decide")
    if neighbours < 0:
        raise EquimetricError(f"neighbours is {neighbours}; give how many nearest items to keep, or 0 for none")

    sets = labelled_sets(embeddings, labels, gallery_embeddings, gallery_labels, normalize=normalize)
    comparison = Comparison(sets.queries, sets.gallery)
    collector = RetrievalScores(chosen, sets, min(neighbours, sets.candidates))
    scan(comparison, [collector], block_rows=block_rows, progress=progress)

    is_lone = (sets.relevant == 0).cpu()
    per_query = {name: torch.cat(tiles).cpu() for name, tiles in collector.scores.items()}
    if lone == "exclude":
        per_query = {name: score.masked_fill(is_lone, torch.nan) for name, score in per_query.items()}
    return Evaluation(
        scores={name: _mean(score) for name, score in per_query.items()},
        score_per_query=per_query,
        labels=sets.labels,
        queries=len(is_lone),
        lone=int(is_lone.sum()),
        neighbours=torch.cat(collector.neighbours).cpu() if neighbours else None,
    )


@dataclass(frozen=True)
class Metric:
    """A metric's score of (relevance, relevant), and the ranks it reads: a fixed number, or R of each query."""

    score: Callable[[Tensor, Tensor], Tensor]
    depth: int | None


FIXED_METRICS = {
    "precision@1": Metric(lambda relevance, _: recall_at(relevance, 1), depth=1),
    "r_precision": Metric(r_precision, depth=None),
    "map@r": Metric(map_at_r, depth=None),
}


class RetrievalScores:
    """Collects the score of every query, and its nearest neighbours if wanted, as the tiles go by."""

    def __init__(self, metrics: dict[str, Metric], sets: LabelledSets, neighbours: int) -> None:
        self.metrics, self.sets, self.wanted_neighbours = metrics, sets, neighbours
        most_relevant = int(sets.relevant.max())
        depths = (most_relevant if metric.depth is None else metric.depth for metric in metrics.values())
        self.depth = min(max(neighbours, *depths), sets.candidates)
        self.scores: dict[str, list[Tensor]] = {name: [] for name in metrics}
        self.neighbours: list[Tensor] = []

    def collect(self, tile: Tile) -> None:
        """Rank the tile's queries as deep as the metrics read, and score each."""

        def is_relevant(columns: Tensor) -> Tensor:
            return self.sets.gallery_classes[columns] == self.sets.query_classes[tile.rows, None]

        columns = nearest(tile, self.depth, relevance=is_relevant, ordered=self.wanted_neighbours)
        relevance = is_relevant(columns)
        for name, metric in self.metrics.items():
            self.scores[name].append(metric.score(relevance, self.sets.relevant[tile.rows]))
        if self.wanted_neighbours:
            self.neighbours.append(columns[:, : self.wanted_neighbours].clone())


def _chosen_metrics(metrics: Iterable[str] | None, ks: Iterable[int]) -> dict[str, Metric]:
    if metrics is None:
        metrics = ["precision@1", *(f"recall@{k}" for k in ks), "r_precision", "map@r"]
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    if not names:
        raise EquimetricError("metrics is empty; name at least one, or leave it out for all of them")
    return {name: _metric(name) for name in names}


def _metric(name: str) -> Metric:
    if name in FIXED_METRICS:
        return FIXED_METRICS[name]
    match = re.fullmatch(r"recall@([1-9][0-9]*)", name)
    if match is None:
        raise unknown_name("metric", name, ["recall@1", *FIXED_METRICS])
    k = int(match[1])
    return Metric(lambda relevance, _: recall_at(relevance, k), depth=k)


def _mean(score: Tensor) -> float:
    """The mean of what is not NaN; summed without rounding, it depends on neither the order nor the threads."""
    counted = score[~score.isnan()].tolist()
    return math.fsum(counted) / len(counted)


def _ranks(relevance: Tensor) -> Tensor:
    return torch.arange(1, relevance.shape[1] + 1, device=relevance.device)


def _within_r(relevance: Tensor, relevant: Tensor) -> Tensor:
    """Relevance at the ranks up to R, False behind; the ranking must be at least R deep."""
    return relevance & (_ranks(relevance) <= relevant[:, None])
