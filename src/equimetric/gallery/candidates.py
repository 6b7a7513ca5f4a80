"""Candidate pairs with bounds of their affinities."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["Candidates", "padding_value"]


@dataclass(frozen=True)
class Candidates:
    """Pairs that may be matches.

    query, item  (P,) their rows
    low, high    (P,) bounds of their affinities
    """

    query: NDArray[np.int64]
    item: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def join(cls, parts: "list[Candidates]") -> "Candidates":
        """Concatenate the candidates of several tiles."""
        if len(parts) == 1:
            return parts[0]
        fields = ("query", "item", "low", "high")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))

    def above(self, lower_bounds: NDArray[np.float64]) -> "Candidates":
        """The pairs whose affinity may reach their query's lower bound (Q,)."""
        keep = np.flatnonzero(self.high >= lower_bounds[self.query])
        return Candidates(self.query[keep], self.item[keep], self.low[keep], self.high[keep])

    def kth_low(self, queries: int, k: int) -> NDArray[np.float64]:
        """(Q,) the k-th largest lower bound of each query's candidates; −∞ where there are fewer."""
        if queries == 1:
            return np.array([np.partition(self.low, -k)[-k] if k <= len(self.low) else -np.inf])
        # By bound, then by query: a sort of floats and one of small integers are faster than np.lexsort.
        order = np.argsort(-self.low)
        order = order[np.argsort(self.query[order].astype(np.min_scalar_type(queries)), kind="stable")]
        count = np.bincount(self.query, minlength=queries)
        kth, enough = np.cumsum(count) - count + k - 1, count >= k
        lower_bounds = np.full(queries, -np.inf)
        lower_bounds[enough] = self.low[order[kth[enough]]]
        return lower_bounds


def padding_value(dtype: DTypeLike) -> float:
    """Smallest value of `dtype`: the padding for removed items in a tile of products."""
    return -np.inf if np.dtype(dtype) == np.float32 else np.iinfo(np.int32).min
