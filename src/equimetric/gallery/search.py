"""Certified search: candidates from bounds, then exact scores, then the order.

The result is that of scoring every item in float64: the same items, the same decisions, the same order. Equal scores
are ordered by id.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.gallery.candidates import Candidates
from equimetric.gallery.comparison import GalleryQueries
from equimetric.gallery.kernel import choose_single_kernel, max_query_code
from equimetric.gallery.scan import TooManyCandidatesError, candidates_within, nearest_candidates
from equimetric.gallery.snapshot import Snapshot
from equimetric.gallery.tiles import TileProducts
from equimetric.gallery.working_memory import release_free_memory
from equimetric.ops.blocks import slices

__all__ = ["SearchHits", "search_nearest", "search_within"]

QUERIES = 128
"""Queries of a batch: enough for fast products, few enough for tiles that stay in the cache."""
PAIRS = 2**8
"""Pairs that are scored at a time."""
MAX_SINGLE_LOOKUPS = 64
"""Ids that are looked up one by one: a call of Arrow for all of them takes longer."""


class SearchHits(NamedTuple):
    """The matches of a query, closest first: rows, ids and exact scores."""

    rows: list[int]
    ids: list[str]
    scores: list[float]


def search_nearest(snapshot: Snapshot, queries: GalleryQueries, k: int) -> Iterator[SearchHits]:
    """The k closest live items of every query; all where there are fewer."""
    k = min(k, snapshot.count)
    if not k:
        yield from (SearchHits([], [], []) for _ in range(len(queries)))
        return
    for batch, candidates in _scan(snapshot, queries, lambda tiles, _: nearest_candidates(tiles, snapshot.live, k)):
        query, item, score = _order(snapshot, batch, candidates)
        yield from _split(snapshot, len(batch), query, item, score, k)


def search_within(snapshot: Snapshot, queries: GalleryQueries, threshold: float) -> Iterator[SearchHits]:
    """All live items of every query that are closer than the threshold."""
    if not snapshot.count:
        yield from (SearchHits([], [], []) for _ in range(len(queries)))
        return
    comparison = snapshot.comparison

    def find(tiles: TileProducts, batch: GalleryQueries) -> Candidates:
        return candidates_within(tiles, snapshot.live, comparison.affinity(threshold, batch.offset).numpy())

    for batch, candidates in _scan(snapshot, queries, find):
        query, item, score = _order(snapshot, batch, candidates)
        closer = comparison.sign * score < comparison.sign * threshold
        yield from _split(snapshot, len(batch), query[closer], item[closer], score[closer], None)


def _scan(
    snapshot: Snapshot, queries: GalleryQueries, find: Callable[[TileProducts, GalleryQueries], Candidates]
) -> Iterator[tuple[GalleryQueries, Candidates]]:
    """Batches of queries with their candidates; a batch with too many candidates, such as ties, is halved."""
    largest = max_query_code()
    waiting = slices(len(queries), QUERIES)[::-1]
    while waiting:
        rows = waiting.pop()
        batch = queries[rows] if rows.stop - rows.start < len(queries) else queries
        try:
            candidates = find(_open_products(snapshot, batch.products, largest), batch)
        except TooManyCandidatesError:
            split = (rows.start + rows.stop) // 2
            waiting += [slice(split, rows.stop), slice(rows.start, split)]
            continue
        yield batch, candidates
    if len(queries) >= QUERIES:
        release_free_memory()


def _open_products(snapshot: Snapshot, queries: Tensor, largest: int | None) -> TileProducts:
    """The fastest products of queries (Q, C); those of codes up to `largest`, if any, are for several."""
    kernel = "codes" if largest is not None else "floats"
    if len(queries) == 1:
        kernel = choose_single_kernel(largest, queries.shape[1])
    if kernel == "rounded codes":
        return snapshot.codes.rounded_products(queries)
    if kernel == "codes" and largest is not None:
        return snapshot.codes.products(queries, largest)
    return snapshot.floats.products(queries)


def _order(
    snapshot: Snapshot, queries: GalleryQueries, candidates: Candidates
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Query, row and exact score of all candidates, by query, closest first, equal scores by id."""
    score = _score(snapshot, queries, candidates).numpy()
    query, item = candidates.query, candidates.item
    closeness = snapshot.comparison.sign * score
    order = np.lexsort((item, closeness, query))
    ranked, close = query[order], closeness[order]
    tied = (ranked[1:] == ranked[:-1]) & (close[1:] == close[:-1])
    if tied.any():
        positions = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
        tie_order = order[positions]
        rank = np.unique(np.array(_read_ids(snapshot, item[tie_order]), dtype=object), return_inverse=True)[1]
        order[positions] = tie_order[np.lexsort((rank, close[positions], ranked[positions]))]
    return ranked, item[order], score[order]


def _score(snapshot: Snapshot, queries: GalleryQueries, candidates: Candidates) -> Tensor:
    """(P,) exact scores of candidates; every row is read once."""
    if len(queries) == 1 and len(candidates.item) <= PAIRS:
        return snapshot.comparison.scores(queries.vectors, snapshot.read_vectors(candidates.item))
    rows, inverse = np.unique(candidates.item, return_inverse=True)
    vectors, item_index, query_index = (
        snapshot.read_vectors(rows),
        torch.from_numpy(inverse),
        torch.from_numpy(candidates.query),
    )
    scores = [
        snapshot.comparison.scores(queries.vectors[query_index[chunk]], vectors[item_index[chunk]])
        for chunk in slices(len(item_index), PAIRS)
    ]
    return torch.cat(scores) if scores else torch.empty(0, dtype=torch.float64)


def _split(
    snapshot: Snapshot,
    queries: int,
    query: NDArray[np.int64],
    item: NDArray[np.int64],
    score: NDArray[np.float64],
    limit: int | None,
) -> Iterator[SearchHits]:
    """The matches of each query, at most `limit`, with ids."""
    if limit is not None:
        within_limit = np.arange(len(query)) - np.searchsorted(query, query) < limit
        query, item, score = query[within_limit], item[within_limit], score[within_limit]
    ends = np.searchsorted(query, np.arange(1, queries + 1)).tolist()
    rows, scores, ids = item.tolist(), score.tolist(), _read_ids(snapshot, item)
    for start, stop in zip([0, *ends], ends, strict=False):
        yield SearchHits(rows[start:stop], ids[start:stop], scores[start:stop])


def _read_ids(snapshot: Snapshot, rows: NDArray[np.int64]) -> list[str]:
    """The ids of rows."""
    ids = snapshot.items.ids
    if len(rows) > MAX_SINGLE_LOOKUPS:
        return list(ids.take(rows).to_pylist())
    return [ids[row].as_py() for row in rows.tolist()]
