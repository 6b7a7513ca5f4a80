"""What `evaluate` returns: the metrics, and the score of every query behind them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

__all__ = ["Evaluation"]


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation(Mapping[str, float]):
    """Metric values by name, with the per-query scores they are the means of.

    Read one metric as evaluation["map@r"], all of them as dict(evaluation).

    scores      name → value, a fraction in [0, 1]
    labels      the queries' labels as given: an int64 tensor (N,), or the strings
    queries     number of queries N, lone ones included
    lone        number of queries without any relevant gallery item
    neighbours  gallery indices (N, n) of the n nearest items of each query, if they were asked for
    """

    scores: Mapping[str, float]
    score_per_query: Mapping[str, Tensor]
    labels: Tensor | tuple[str, ...]
    queries: int
    lone: int
    neighbours: Tensor | None = None

    @property
    def per_query(self) -> dict[str, Tensor]:
        """Name → float64 score of each query (N,); NaN marks a lone query that was excluded."""
        return dict(self.score_per_query)

    def to_dict(self) -> dict[str, Any]:
        """The summary in plain types, ready for JSON."""
        return {"metrics": dict(self.scores), "queries": self.queries, "lone": self.lone}

    def __getitem__(self, name: str) -> float:
        return self.scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        width = max(map(len, self.scores), default=0)
        lines = [f"  {name:<{width}}  {value:7.2%}" for name, value in self.scores.items()]
        return "\n".join([f"Evaluation: {self.queries} queries, {self.lone} lone", *lines])
