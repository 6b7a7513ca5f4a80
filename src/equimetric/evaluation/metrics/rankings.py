"""Scores of single queries by their ranking: what retrieval metrics read, and how they are registered.

A metric of the first ranks is a function of `relevance` (Q, k), which of a query's k nearest gallery items are of its
class, and `num_relevant` (Q,), R, the number of such items in the whole gallery. A metric of all ranks is a function of
`others` (Q, R), how many items of other classes rank before the m-th nearest relevant one. A graded metric is one of
`grades` (Q, k), how relevant the k nearest items are, and `ideal` (Q, k), the k largest grades in the gallery, falling.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, get_args

import torch
from torch import Tensor

from equimetric.errors import unknown_name
from equimetric.evaluation.engine.candidates import HalfMatrixCandidates, candidate_capacity
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.exact import WORKING_BYTES
from equimetric.evaluation.engine.half_matrix import HalfMatrixTopK
from equimetric.evaluation.engine.nearest import SPARE, NearestEntries, find_nearest, rerank_near_ties
from equimetric.evaluation.engine.positive_ranks import count_others_before
from equimetric.evaluation.engine.sets import LabelledSets, Overlap
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.evaluation.evidence import Detail, Evidence, Score
from equimetric.evaluation.families import Metric
from equimetric.evaluation.families import metric as register_metric
from equimetric.evaluation.resampling.class_statistics import ClassStatistic, median_over_queries
from equimetric.evaluation.result import Evaluation
from equimetric.ops.blocks import TILE_BYTES, slices

__all__ = ["NearestNeighbours", "RelevantRanks", "first_ranks_metric", "graded_metric", "relevant_ranks_metric"]

FirstRanksScore = Callable[[Metric, Tensor, Tensor], Tensor]
RelevantRanksScore = Callable[[Metric, Tensor], Tensor]
GradedScore = Callable[[Mapping[str, Any], Tensor, Tensor], Tensor]

MAX_MERGED_ENTRIES = 64
"""Top entries merged with those of each new strip; where there are more, candidates are gathered first."""
KEPT_BYTES = 4 * TILE_BYTES
"""Memory for the kept entries of all queries, a value and an index each, where every pair is computed once."""
RANK_CHUNK_SIZE = 4096
"""Queries ranked at a time once all strips are read."""

_first_ranks: dict[str, FirstRanksScore] = {}
_relevant_ranks: dict[str, tuple[RelevantRanksScore, bool]] = {}
_graded: dict[str, GradedScore] = {}


def first_ranks_metric(name: str, **declaration: Any) -> Callable[[FirstRanksScore], FirstRanksScore]:
    """Register a metric of the first ranks, (metric, relevance, num_relevant) → (Q,): see `families.metric`.

    With a parameter k it reads the first k ranks, without one the first R of each query.
    """

    def register(function: FirstRanksScore) -> FirstRanksScore:
        _first_ranks[name] = function
        _register(name, NearestNeighbours, function, declaration)
        return function

    return register


def relevant_ranks_metric(
    name: str, *, first_only: bool = False, median: bool = False, **declaration: Any
) -> Callable[[RelevantRanksScore], RelevantRanksScore]:
    """Register a metric of the ranks of all relevant items, (metric, others) → (Q,): see `families.metric`.

    With `first_only` it reads the rank of the first relevant item alone. With `median` it is the median over queries in
    place of the mean.
    """

    def register(function: RelevantRanksScore) -> RelevantRanksScore:
        _relevant_ranks[name] = function, first_only
        _register(name, RelevantRanks, function, declaration, median=median)
        return function

    return register


def graded_metric(name: str, **declaration: Any) -> Callable[[GradedScore], GradedScore]:
    """Register a metric of the first k ranks by their grades, (options, grades, ideal) → (Q,): see `families.metric`.

    The option `overlap` decides the grade of items that share labels with the query.
    """

    def register(function: GradedScore) -> GradedScore:
        _graded[name] = function
        _register(name, NearestNeighbours, function, declaration)
        return function

    return register


def _register(
    name: str,
    collector: "type[NearestNeighbours] | type[RelevantRanks]",
    function: Callable[..., Tensor],
    declaration: Mapping[str, Any],
    *,
    median: bool = False,
) -> None:
    def score(metric: Metric, evidence: Evidence) -> Score:
        """The mean or median over queries; lone ones are excluded unless they count as zero."""
        per_query = evidence[collector].scores[metric.name]
        if evidence.options["lone"] == "exclude":
            per_query = per_query.masked_fill(evidence.sets.num_relevant == 0, torch.nan)
        if median:
            # As scores of single queries they would be averaged by class and resampled as a mean.
            return Score(find_median(per_query[~per_query.isnan()]), details=(QueryScores(per_query.cpu()),))
        return Score.from_queries(per_query.cpu())

    resample = resample_median if median else None
    decorate = register_metric(
        name, collectors=(collector,), macro=not median, multi_label=True, resample=resample, **declaration
    )
    decorate(update_wrapper(score, function))


@dataclass(frozen=True, eq=False)
class QueryScores(Detail):
    """The scores of the queries, (N,) with NaN for those that do not count, whose median is the metric."""

    scores: Tensor

    def json_entries(self) -> dict[str, Any]:
        """Nothing: scores of single queries have a file of their own."""
        return {}


def resample_median(metric: Metric, evaluation: Evaluation) -> ClassStatistic:
    """The median over queries as a function of how often each class is drawn."""
    query_scores = evaluation.detail(QueryScores, metric.name)
    assert query_scores is not None
    return median_over_queries(query_scores.scores, evaluation.memberships, len(evaluation.class_labels))


def find_median(values: Tensor) -> float:
    """The middle value, or the mean of the two in the middle; NaN where there is none."""
    if not len(values):
        return torch.nan
    middle = values.sort().values[(len(values) - 1) // 2 : len(values) // 2 + 1]
    return float(middle.mean())


class NearestNeighbours(Collector):
    """Scores every query by its nearest neighbours, as deep as the metrics read; keeps the first `neighbours`."""

    accepts_coarse = True
    accepts_columns = True

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[Metric]) -> None:
        super().__init__(sets, options, metrics)
        self.num_kept = min(int(options["neighbours"]), sets.candidates)
        self.neighbours = sets.query_classes.new_empty(len(sets.queries), self.num_kept)
        self.scores = {metric.name: _nan_scores(sets) for metric in metrics}
        depths: list[int | None] = [metric.parameters.get("k") for metric in metrics]
        self.reads_r = None in depths
        self.depth = max([1, self.num_kept, *(depth for depth in depths if depth is not None)])
        # Unlike classes, grades may differ among relevant items, so that their order counts, too.
        if options["overlap"] not in get_args(Overlap):
            raise unknown_name("overlap", options["overlap"], get_args(Overlap))
        graded = [metric["k"] for metric in metrics if metric.family in _graded and options["overlap"] != "shared"]
        self.ordered = min(max([self.num_kept, *graded]), sets.candidates)
        self.half: HalfMatrixTopK | HalfMatrixCandidates | None = None
        self.entries: NearestEntries | None = None

    def depth_for(self, num_relevant: Tensor) -> int:
        """Number of ranks the metrics read for queries with these numbers of relevant items."""
        return min(max(self.depth, int(num_relevant.max()) if self.reads_r else 0), self.sets.candidates)

    def accepts_strips(self) -> bool:
        """Strips keep the top entries of all queries, so these must be few."""
        entries = self._width() if self._width() <= MAX_MERGED_ENTRIES else candidate_capacity(self._width())
        return len(self.sets.queries) * entries * 12 <= KEPT_BYTES

    def prepare(self, matrix: SimilarityMatrix) -> None:
        """Keep the matrix, which ranks queries once all strips are read."""
        self.matrix = matrix

    def collect(self, tile: Tile) -> None:
        """Rank the tile's queries as deep as the metrics read, and score each, once all their columns are read."""
        depth = self.depth_for(self.sets.num_relevant[tile.rows])
        if tile.is_whole:
            ranked = find_nearest(tile, depth, sets=self.sets, ordered=self.ordered)
        else:
            if tile.is_first or self.entries is None:
                self.entries = NearestEntries(tile.matrix, tile.rows, depth, coarse=tile.coarse)
            self.entries.take(tile.similarity, tile.columns.start)
            if not tile.is_last:
                return
            ranked, self.entries = self.entries.rank(sets=self.sets, ordered=self.ordered), None
        self._score(tile.rows, ranked)

    def collect_strip(self, strip: Strip) -> None:
        """Keep the candidates that the strip brings to its queries and to later ones."""
        self._start_half().take(strip)

    def _start_half(self) -> HalfMatrixTopK | HalfMatrixCandidates:
        if self.half is None:
            width = self._width()
            self.half = (HalfMatrixTopK if width <= MAX_MERGED_ENTRIES else HalfMatrixCandidates)(self.matrix, width)
        return self.half

    def _width(self) -> int:
        """Number of top entries kept per query where every pair is computed once."""
        return min(self.depth_for(self.sets.num_relevant) + SPARE, len(self.sets.queries))

    def partial(self, rows: Tensor) -> Any:
        """The candidates of all queries, or the scores and neighbours of these."""
        if self.half is not None:
            return "candidates", self.half.partial()
        return "scores", (rows, {name: score[rows] for name, score in self.scores.items()}, self.neighbours[rows])

    def merge(self, partial: Any) -> None:
        """Take candidates, or scores and neighbours of other queries."""
        kind, payload = partial
        if kind == "candidates":
            self._start_half().merge(payload)
            return
        rows, scores, self.neighbours[rows] = payload
        _write_rows(self.scores, rows, scores)

    def finish(self) -> None:
        """Rank and score the queries by their candidates."""
        if self.half is None:
            return
        depth = self.depth_for(self.sets.num_relevant)
        for block in slices(len(self.matrix.order), RANK_CHUNK_SIZE):
            values, indices = self.half.entries(block)
            rows, items = self.matrix.order[block], self.matrix.order[indices]
            ranked = rerank_near_ties(self.matrix, rows, values, items, depth, sets=self.sets, ordered=self.ordered)
            self._score(rows, ranked)
        self.half = None

    def _score(self, rows: Tensor, columns: Tensor) -> None:
        relevance, num_relevant = self.sets.is_relevant(rows, columns), self.sets.num_relevant[rows]
        for metric in self.metrics:
            if metric.family in _graded:
                score = self._score_grades(metric, rows, columns[:, : metric["k"]])
            else:
                score = _first_ranks[metric.family](metric, relevance, num_relevant)
            self.scores[metric.name][rows] = score
        self.neighbours[rows] = columns[:, : self.num_kept]

    def _score_grades(self, metric: Metric, rows: Tensor, columns: Tensor) -> Tensor:
        overlap = self.options["overlap"]
        grades = self.sets.grades(rows, columns, overlap)
        if overlap == "shared":
            ideal = (torch.arange(columns.shape[1], device=rows.device) < self.sets.num_relevant[rows, None]).double()
        else:
            ideal = torch.empty_like(grades)
            for block in slices(len(rows), max(1, WORKING_BYTES // (8 * len(self.sets.gallery_classes)))):
                all_grades = self.matrix.mask_excluded(self.sets.all_grades(rows[block], overlap), rows[block])
                ideal[block] = all_grades.topk(columns.shape[1], dim=1).values.clamp_(min=0)
        return _graded[metric.family](self.options, grades, ideal)


class RelevantRanks(Collector):
    """Scores every query by the ranks of all its relevant items, or of the first if no metric reads more."""

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[Metric]) -> None:
        super().__init__(sets, options, metrics)
        self.scores = {metric.name: _nan_scores(sets) for metric in metrics}
        self.first_only = all(_relevant_ranks[metric.family][1] for metric in metrics)

    def collect(self, tile: Tile) -> None:
        """Count the items that rank before the relevant ones of the tile's queries, and score each query."""
        others = count_others_before(tile, self.sets, first_only=self.first_only)
        if not others.shape[1]:
            others = others.new_full((len(others), 1), -1)
        for metric in self.metrics:
            function, _ = _relevant_ranks[metric.family]
            self.scores[metric.name][tile.rows] = function(metric, others)

    def partial(self, rows: Tensor) -> Any:
        """The scores of these queries."""
        return rows, {name: score[rows] for name, score in self.scores.items()}

    def merge(self, partial: Any) -> None:
        """Take the scores of other queries."""
        _write_rows(self.scores, *partial)


def _nan_scores(sets: LabelledSets) -> Tensor:
    return torch.full((len(sets.queries),), torch.nan, dtype=torch.float64, device=sets.queries.device)


def _write_rows(scores: Mapping[str, Tensor], rows: Tensor, row_scores: Mapping[str, Tensor]) -> None:
    for name, score in row_scores.items():
        scores[name][rows] = score
