"""Retrieval metrics by exact nearest-neighbour search.

`relevance` (Q, k) says which of a query's k nearest gallery items are of its class, `relevant` (Q,) is R, the number of
such items in the whole gallery; a metric that reads the first ranks only is a pure function of the two. Where all ranks
count, it reads `others` (Q, R) instead: how many items of other classes rank before the m-th nearest relevant one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from equimetric.evaluation.candidates import CandidatesOfHalves, candidates_kept
from equimetric.evaluation.families import Collector, Evidence, MetricFamily, Score
from equimetric.evaluation.halves import LeadingOfHalves
from equimetric.evaluation.inputs import LabelledSets
from equimetric.evaluation.nearest import SPARE, nearest, round_ties
from equimetric.evaluation.positive_ranks import others_before_relevant
from equimetric.evaluation.scan import TILE_BYTES, Strip, Tile

__all__ = [
    "FAMILIES",
    "NearestNeighbours",
    "RelevantRanks",
    "average_precision",
    "map_at",
    "map_at_r",
    "precision_at",
    "r_precision",
    "recall_at",
    "reciprocal_rank",
]


def recall_at(relevance: Tensor, k: int) -> Tensor:
    """1 if any of the first K items is relevant, else 0; (Q,). Not the fraction of the relevant items found."""
    return relevance[:, :k].any(dim=1).double()


def precision_at(relevance: Tensor, k: int) -> Tensor:
    """(1/K) Σ_{r≤K} rel_r; (Q,)."""
    return relevance[:, :k].sum(dim=1).double() / k


def map_at(relevance: Tensor, relevant: Tensor, k: int) -> Tensor:
    """(1/min(R, K)) Σ_{r≤K} rel_r · precision@r, so that a perfect ranking scores 1; 0 where R = 0; (Q,)."""
    return _sum_of_precisions(relevance[:, :k]) / relevant.clamp(min=1, max=k)


def r_precision(relevance: Tensor, relevant: Tensor) -> Tensor:
    """(1/R) Σ_{r≤R} rel_r; 0 where R = 0; (Q,)."""
    return _within_r(relevance, relevant).sum(dim=1) / relevant.clamp(min=1).double()


def map_at_r(relevance: Tensor, relevant: Tensor) -> Tensor:
    """(1/R) Σ_{r≤R} rel_r · precision@r, where precision@r = (Σ_{t≤r} rel_t) / r; 0 where R = 0; (Q,)."""
    return _sum_of_precisions(_within_r(relevance, relevant)) / relevant.clamp(min=1)


def reciprocal_rank(others: Tensor) -> Tensor:
    """1 / rank of the first relevant item; 0 where there is none; (Q,)."""
    first = others[:, 0].double()
    return torch.where(first >= 0, 1 / (1 + first), 0.0)


def average_precision(others: Tensor) -> Tensor:
    """(1/R) Σ_m m / rank_m over all relevant items, the m-th of them at rank_m = m + others_m; (Q,)."""
    exists = others >= 0
    m = _ranks(others).double()
    return _sum_in_order(torch.where(exists, m / (m + others), 0.0)) / exists.sum(dim=1).clamp(min=1)


MOST_MERGED = 64
"""Leading entries that are merged with those of each new strip; where there are more, candidates are gathered first."""
KEPT_BYTES = TILE_BYTES
"""Memory for what is kept of all queries, a value and a place each, where every pair is computed once."""
SCORES_OF_FIRST_RANKS: Mapping[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "recall": lambda relevance, _, k: recall_at(relevance, k),
    "precision": lambda relevance, _, k: precision_at(relevance, k),
    "map": map_at,
    "r_precision": lambda relevance, relevant, _: r_precision(relevance, relevant),
    "map@r": lambda relevance, relevant, _: map_at_r(relevance, relevant),
}


class NearestNeighbours(Collector):
    """Scores every query by its nearest neighbours, as deep as the metrics read, and keeps some if wanted."""

    accepts_coarse = True

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[re.Match[str]]) -> None:
        super().__init__(sets, options, metrics)
        self.kept = min(int(options["neighbours"]), sets.candidates)
        self.neighbours = sets.query_classes.new_empty(len(sets.queries), self.kept)
        self.scores = {metric.string: _unknown_scores(sets) for metric in metrics}
        depths = [_depth(metric) for metric in metrics]
        self.reads_r = None in depths
        self.depth = max([1, self.kept, *(depth for depth in depths if depth is not None)])
        self.half: LeadingOfHalves | CandidatesOfHalves | None = None

    def depth_for(self, relevant: Tensor) -> int:
        """How many ranks the metrics read of queries with so many relevant items."""
        return min(max(self.depth, int(relevant.max()) if self.reads_r else 0), self.sets.candidates)

    def accepts_strips(self) -> bool:
        """Strips keep the leading entries of all queries, so these must be few."""
        kept = self._width() if self._width() <= MOST_MERGED else candidates_kept(self._width())
        return len(self.sets.queries) * kept * 12 <= KEPT_BYTES

    def collect(self, tile: Tile) -> None:
        """Rank the tile's queries as deep as the metrics read, and score each."""
        depth = self.depth_for(self.sets.relevant[tile.rows])
        self._score(tile.rows, nearest(tile, depth, sets=self.sets, ordered=self.kept))

    def collect_strip(self, strip: Strip) -> None:
        """The same for a strip's queries, and keep from it what those after them will need."""
        depth, width = self.depth_for(self.sets.relevant), self._width()
        if self.half is None:
            self.half = (LeadingOfHalves if width <= MOST_MERGED else CandidatesOfHalves)(strip.comparison, width)
        values, places = self.half.take(strip)
        rows, items = strip.queries, strip.comparison.order[places]
        self._score(rows, round_ties(strip.comparison, rows, values, items, depth, sets=self.sets, ordered=self.kept))

    def _width(self) -> int:
        """How many leading entries are kept of each query where every pair is computed once."""
        return min(self.depth_for(self.sets.relevant) + SPARE, len(self.sets.queries))

    def finish(self) -> None:
        """Let go of what was kept for later."""
        self.half = None

    def _score(self, rows: Tensor, columns: Tensor) -> None:
        relevance, relevant = self.sets.is_relevant(rows, columns), self.sets.relevant[rows]
        for metric in self.metrics:
            score = SCORES_OF_FIRST_RANKS[metric["metric"]]
            self.scores[metric.string][rows] = score(relevance, relevant, _depth(metric) or 0)
        self.neighbours[rows] = columns[:, : self.kept]


class RelevantRanks(Collector):
    """Scores every query by the ranks of all its relevant items, or of the first if no metric reads more."""

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[re.Match[str]]) -> None:
        super().__init__(sets, options, metrics)
        self.scores = {metric.string: _unknown_scores(sets) for metric in metrics}

    def collect(self, tile: Tile) -> None:
        """Count what ranks before the relevant items of the tile's queries, and score each query."""
        others = others_before_relevant(tile, self.sets, first_only="map" not in self.scores)
        if not others.shape[1]:
            others = others.new_full((len(others), 1), -1)
        for name, score in self.scores.items():
            score[tile.rows] = average_precision(others) if name == "map" else reciprocal_rank(others)


def _counted(per_query: Tensor, evidence: Evidence) -> Score:
    """The mean over queries, without the lone ones unless these count as zero."""
    if evidence.options["lone"] == "exclude":
        per_query = per_query.masked_fill(evidence.sets.relevant == 0, torch.nan)
    return Score.of_queries(per_query.cpu())


def _score_of_first_ranks(metric: re.Match[str], evidence: Evidence) -> Score:
    return _counted(evidence[NearestNeighbours].scores[metric.string], evidence)


def _score_of_all_ranks(metric: re.Match[str], evidence: Evidence) -> Score:
    return _counted(evidence[RelevantRanks].scores[metric.string], evidence)


FAMILIES: tuple[MetricFamily, ...] = (
    MetricFamily(
        pattern=r"(?P<metric>recall|precision|map)@(?P<k>[1-9][0-9]*)",
        examples=("recall@1", "precision@1", "map@10"),
        collectors=(NearestNeighbours,),
        score=_score_of_first_ranks,
    ),
    MetricFamily(
        pattern=r"(?P<metric>r_precision|map@r)",
        examples=("r_precision", "map@r"),
        collectors=(NearestNeighbours,),
        score=_score_of_first_ranks,
    ),
    MetricFamily(
        pattern=r"map|mrr",
        examples=("map", "mrr"),
        collectors=(RelevantRanks,),
        score=_score_of_all_ranks,
    ),
)


def _depth(metric: re.Match[str]) -> int | None:
    """The ranks that a metric reads: a fixed number, or None for R of each query."""
    k = metric.groupdict().get("k")
    return None if k is None else int(k)


def _unknown_scores(sets: LabelledSets) -> Tensor:
    return torch.full((len(sets.queries),), torch.nan, dtype=torch.float64, device=sets.queries.device)


def _ranks(relevance: Tensor) -> Tensor:
    return torch.arange(1, relevance.shape[1] + 1, device=relevance.device)


def _within_r(relevance: Tensor, relevant: Tensor) -> Tensor:
    """Relevance at the ranks up to R, False behind; the ranking must be at least R deep."""
    return relevance & (_ranks(relevance) <= relevant[:, None])


def _sum_of_precisions(relevance: Tensor) -> Tensor:
    """Σ_r rel_r · precision@r; (Q,)."""
    precision = relevance.cumsum(dim=1) / _ranks(relevance).double()
    return _sum_in_order(relevance * precision)


def _sum_in_order(terms: Tensor) -> Tensor:
    """Sum of each row from left to right: zeros behind, of which a wider tile has more, do not change its last bit."""
    return terms.cumsum(dim=1)[:, -1]
