"""Galleries on a database that finds vectors by inner products in float32; its results are scored again exactly.

Every comparison of a certificate is an inner product of longer vectors (S):

    cosine     q·x                                of unit vectors
    euclidean  (q, 1)·(x, −½ ‖x‖²)                = ½ ‖q‖² − ½ d²
    cohort     q·x                                = s', of extended vectors

The database's product differs from the true one by at most an error e(q). It is queried for every item whose product
is within 2e of the threshold, or of the k-th nearest; these are scored by the certificate's own formula, in float64.
So the results are those of a scan of all items in float64.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.gallery.comparison import CertifiedComparison, GalleryQueries
from equimetric.gallery.gallery import Gallery
from equimetric.gallery.items import ID
from equimetric.gallery.search import SearchHits

__all__ = ["RescoredGallery", "StoredItems", "product_width", "vectors_to_store"]

SPARE = 16
"""Items beyond the k-th of the first request: most queries have no more within their error."""
GROWTH = 4
ROUNDING = 2e-6
"""Relative error bound of everything but the products, as in `tiles`."""
EPSILON = 2.0**-23


@dataclass(frozen=True)
class StoredItems:
    """Items that a database found, in the order of their products.

    ids       (P,)
    products  (P,) as the database computed them, descending
    vectors   (P, S) as they are stored
    """

    ids: list[str]
    products: NDArray[np.float64]
    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)


class RescoredGallery(Gallery):
    """A gallery whose store finds items by products in float32."""

    _identities: int | None = None

    def count_identities(self) -> int:
        """Number of distinct identities of the items; counted once, and again after a change."""
        if self._identities is None:
            column = ID if self.identity is None else self.identity
            self._identities = len(self.items().column(column).unique()) if len(self) else 0
        return self._identities

    @abstractmethod
    def find_products(self, query: NDArray[np.float32], limit: int, min_product: float | None) -> StoredItems:
        """The items of the largest products with a query (S,), at most `limit`, and none below `min_product`."""

    @abstractmethod
    def max_length(self) -> float:
        """An upper bound of the lengths of the stored vectors (S)."""

    def find_nearest(self, queries: GalleryQueries, k: int) -> Iterator[SearchHits]:
        """The k closest items of every query, closest first, equal scores by id."""
        count, max_length = len(self), self.max_length()
        for index in range(len(queries)):
            query, error = self._make_query(queries[index : index + 1], max_length)
            limit, candidates = k + SPARE, StoredItems([], np.empty(0), np.empty((0, len(query)), np.float32))
            while count:
                candidates = self.find_products(query, limit, None)
                # The k nearest have products of at least the k-th less e, all others of at most the last plus e.
                if len(candidates) < limit or candidates.products[-1] < candidates.products[k - 1] - 2 * error:
                    break
                limit *= GROWTH
            yield self._score(queries[index : index + 1], candidates, k)

    def find_within(self, queries: GalleryQueries, threshold: float) -> Iterator[SearchHits]:
        """All items of every query that are closer than a threshold, in the same order."""
        count, max_length, sign = len(self), self.max_length(), self.comparison.sign
        for index in range(len(queries)):
            single = queries[index : index + 1]
            query, error = self._make_query(single, max_length)
            min_product = product_for_score(self.comparison, threshold, single) - error
            hits = self._score(single, self.find_products(query, max(count, 1), min_product), None)
            closer = sum(sign * score < sign * threshold for score in hits.scores)
            yield SearchHits([], hits.ids[:closer], hits.scores[:closer])

    def hit_identities(self, hits: SearchHits) -> list[str]:
        """The identities of what a query found."""
        return self.names(hits.ids)

    def vectors(self, ids: Sequence[str]) -> NDArray[np.float32]:
        """(N, E) the stored vectors of items."""
        return self._strip_shift(self.read_stored(ids)).numpy()

    @abstractmethod
    def read_stored(self, ids: Sequence[str]) -> NDArray[np.float32]:
        """(N, S) the vectors of items as they are stored."""

    def _strip_shift(self, stored: NDArray[np.float32]) -> Tensor:
        """(N, E) items from stored vectors (N, S)."""
        return torch.from_numpy(np.array(stored[:, : self.comparison.width]))

    def _make_query(self, query: GalleryQueries, max_length: float) -> tuple[NDArray[np.float32], float]:
        """A query (S,) as the database takes it, and the error of its products."""
        vector = query.vectors[0]
        if self.comparison.kind == "euclidean":
            vector = torch.cat([vector, vector.new_ones(1)])
        norm = float(vector.norm())
        relative = (len(vector) + 8) * EPSILON + ROUNDING
        return vector.float().numpy(), relative * (norm * max_length + norm**2 + 1)

    def _score(self, query: GalleryQueries, candidates: StoredItems, k: int | None) -> SearchHits:
        """Exact scores of candidates, closest first."""
        if not len(candidates):
            return SearchHits([], [], [])
        vectors = self._strip_shift(candidates.vectors)
        scores = self.comparison.scores(query.vectors.expand(len(vectors), -1), vectors).tolist()
        order = sorted(
            zip(scores, candidates.ids, strict=True), key=lambda pair: (self.comparison.sign * pair[0], pair[1])
        )
        return SearchHits([], [name for _, name in order[:k]], [score for score, _ in order[:k]])


def product_width(comparison: CertifiedComparison) -> int:
    """S, the columns of a stored vector."""
    return comparison.width + (1 if comparison.kind == "euclidean" else 0)


def vectors_to_store(comparison: CertifiedComparison, items: Tensor) -> NDArray[np.float32]:
    """(N, S) the vectors to store for items (N, E)."""
    if comparison.kind == "euclidean":
        items = torch.cat([items, comparison.shifts(items).float()[:, None]], dim=1)
    stored: NDArray[np.float32] = items.numpy()
    return stored


def product_for_score(comparison: CertifiedComparison, score: float, query: GalleryQueries) -> float:
    """The product at which a query has a score."""
    affinity = float(comparison.affinity(score, query.offset)[0])
    return affinity + float(query.offset[0]) if comparison.kind == "cohort" else affinity
