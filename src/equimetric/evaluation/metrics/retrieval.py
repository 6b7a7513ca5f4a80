"""Retrieval metrics by exact nearest-neighbour search: see `rankings` for `relevance`, `num_relevant` and `others`."""

import torch
from torch import Tensor

from equimetric.evaluation.families import Metric
from equimetric.evaluation.metrics.rankings import first_ranks_metric, relevant_ranks_metric

__all__ = [
    "K",
    "average_precision",
    "first_rank",
    "map_at",
    "map_at_r",
    "precision_at",
    "r_precision",
    "recall_at",
    "reciprocal_rank",
    "sum_in_order",
]

K = r"(?P<k>[1-9][0-9]*)"


def recall_at(relevance: Tensor, k: int) -> Tensor:
    """1 if any of the first K items is relevant, else 0; (Q,). Not the fraction of the relevant items found."""
    return relevance[:, :k].any(dim=1).double()


def precision_at(relevance: Tensor, k: int) -> Tensor:
    """(1/K) Σ_{r≤K} rel_r; (Q,)."""
    return relevance[:, :k].sum(dim=1).double() / k


def map_at(relevance: Tensor, num_relevant: Tensor, k: int) -> Tensor:
    """(1/min(R, K)) Σ_{r≤K} rel_r · precision@r, so that a perfect ranking scores 1; 0 where R = 0; (Q,)."""
    return _sum_precisions(relevance[:, :k]) / num_relevant.clamp(min=1, max=k)


def r_precision(relevance: Tensor, num_relevant: Tensor) -> Tensor:
    """(1/R) Σ_{r≤R} rel_r; 0 where R = 0; (Q,)."""
    return _within_r(relevance, num_relevant).sum(dim=1) / num_relevant.clamp(min=1).double()


def map_at_r(relevance: Tensor, num_relevant: Tensor) -> Tensor:
    """(1/R) Σ_{r≤R} rel_r · precision@r, where precision@r = (Σ_{t≤r} rel_t) / r; 0 where R = 0; (Q,)."""
    return _sum_precisions(_within_r(relevance, num_relevant)) / num_relevant.clamp(min=1)


def reciprocal_rank(others: Tensor) -> Tensor:
    """1 / rank of the first relevant item; 0 where there is none; (Q,)."""
    first = others[:, 0].double()
    return torch.where(first >= 0, 1 / (1 + first), 0.0)


def first_rank(others: Tensor) -> Tensor:
    """Rank of the first relevant item, from 1 on; infinite where there is none; (Q,)."""
    first = others[:, 0].double()
    return torch.where(first >= 0, 1 + first, torch.inf)


def average_precision(others: Tensor) -> Tensor:
    """(1/R) Σ_m m / rank_m over all relevant items, the m-th of them at rank_m = m + others_m; (Q,)."""
    exists = others >= 0
    m = _ranks(others).double()
    return sum_in_order(torch.where(exists, m / (m + others), 0.0)) / exists.sum(dim=1).clamp(min=1)


@first_ranks_metric("recall@K", pattern=f"recall@{K}", parameters={"k": int}, examples=("recall@1",))
def _recall(metric: Metric, relevance: Tensor, _: Tensor) -> Tensor:
    """Share of queries with a relevant item among the first K."""
    return recall_at(relevance, metric["k"])


@first_ranks_metric("precision@K", pattern=f"precision@{K}", parameters={"k": int}, examples=("precision@1",))
def _precision(metric: Metric, relevance: Tensor, _: Tensor) -> Tensor:
    """Share of relevant items among the first K."""
    return precision_at(relevance, metric["k"])


@first_ranks_metric("map@K", pattern=f"map@{K}", parameters={"k": int}, examples=("map@10",))
def _map_at(metric: Metric, relevance: Tensor, num_relevant: Tensor) -> Tensor:
    """Mean average precision over the first K ranks."""
    return map_at(relevance, num_relevant, metric["k"])


@first_ranks_metric("r_precision", examples=("r_precision",))
def _r_precision(_: Metric, relevance: Tensor, num_relevant: Tensor) -> Tensor:
    """Share of relevant items among the first R, the number of relevant items of the query."""
    return r_precision(relevance, num_relevant)


@first_ranks_metric("map@r", examples=("map@r",))
def _map_at_r(_: Metric, relevance: Tensor, num_relevant: Tensor) -> Tensor:
    """Mean average precision over the first R ranks."""
    return map_at_r(relevance, num_relevant)


@relevant_ranks_metric("map", examples=("map",))
def _map(_: Metric, others: Tensor) -> Tensor:
    """Mean average precision over all ranks."""
    return average_precision(others)


@relevant_ranks_metric("mrr", first_only=True, examples=("mrr",))
def _mrr(_: Metric, others: Tensor) -> Tensor:
    """Mean reciprocal rank of the first relevant item."""
    return reciprocal_rank(others)


@relevant_ranks_metric(
    "median_rank", first_only=True, median=True, examples=("median_rank",), percent=False, higher_is_better=False
)
def _median_rank(_: Metric, others: Tensor) -> Tensor:
    """Median rank of the first relevant item, 1 at best."""
    return first_rank(others)


def _ranks(relevance: Tensor) -> Tensor:
    return torch.arange(1, relevance.shape[1] + 1, device=relevance.device)


def _within_r(relevance: Tensor, num_relevant: Tensor) -> Tensor:
    """Relevance at the ranks up to R, False after; the ranking must be at least R deep."""
    return relevance & (_ranks(relevance) <= num_relevant[:, None])


def _sum_precisions(relevance: Tensor) -> Tensor:
    """Σ_r rel_r · precision@r; (Q,)."""
    precision = relevance.cumsum(dim=1) / _ranks(relevance).double()
    return sum_in_order(relevance * precision)


def sum_in_order(terms: Tensor) -> Tensor:
    """Sum of each row from left to right: the trailing zeros of wider tiles do not change its last bit."""
    return terms.cumsum(dim=1)[:, -1]
