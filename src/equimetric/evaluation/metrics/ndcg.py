"""Normalised discounted cumulative gain: a ranking by graded relevance, compared with the best possible one.

Järvelin, Kekäläinen: Cumulated gain-based evaluation of IR techniques (2002).

DCG@K = Σ_{r≤K} g(rel_r) / log2(r + 1), divided by that of all compared items in the order of their relevance. An item
of the query's class has relevance 1. With several labels per sample it has relevance 1 for a shared one, or with
`overlap="jaccard"` |A ∩ B| / |A ∪ B|. The gain is g(rel) = rel, or with `gain="exponential"` 2^rel − 1.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import unknown_name
from equimetric.evaluation.metrics.rankings import graded_metric
from equimetric.evaluation.metrics.retrieval import K, sum_in_order

__all__ = ["ndcg"]

GAINS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda grades: grades,
    "exponential": lambda grades: torch.exp2(grades) - 1,
}


def ndcg(grades: Tensor, ideal: Tensor, gain: str = "linear") -> Tensor:
    """DCG of grades (Q, K) at their ranks over that of the K largest ones, falling; 0 where all are 0; (Q,) float64."""
    if gain not in GAINS:
        raise unknown_name("gain", gain, GAINS)
    discount = torch.arange(2, grades.shape[1] + 2, device=grades.device, dtype=torch.float64).log2()
    dcg, ideal_dcg = (sum_in_order(GAINS[gain](relevance.double()) / discount) for relevance in (grades, ideal))
    return torch.where(ideal_dcg > 0, dcg / ideal_dcg, 0.0)


@graded_metric(
    "ndcg@K",
    pattern=f"ndcg@{K}",
    parameters={"k": int},
    examples=("ndcg@10",),
    options={"overlap": "shared", "gain": "linear"},
)
def _ndcg(options: Mapping[str, Any], grades: Tensor, ideal: Tensor) -> Tensor:
    """Normalised discounted cumulative gain of the first K ranks."""
    return ndcg(grades, ideal, options["gain"])
