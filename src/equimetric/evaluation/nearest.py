"""The k nearest gallery items of every query in a tile: largest similarity first, ties by lower gallery index.

The tile ranks in its own precision. Only where neighbours are closer than its rounding error are their similarities
taken again without rounding, so the result depends on the vectors alone: not on the block size, the number of threads,
or where in the gallery a duplicate stands.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from equimetric.evaluation.comparison import Comparison
from equimetric.evaluation.exact import slices
from equimetric.evaluation.inputs import LabelledSets
from equimetric.evaluation.scan import Tile

__all__ = ["SPARE", "first_k", "leading", "nearest", "round_ties"]

SPARE = 4
"""Ranks looked at beyond k: a near-tie across the k-th rank that ends within them needs no second look at the row."""
COARSE_SPARE = 64
"""The same for bfloat16 products, whose near-ties are many."""
EXACT_SHARE = 4
"""Rows are taken again in quarters of a tile: they are held as float64, beside masks of the same shape."""
NOBODY = -1
"""Stands in place of a gallery index where a query has fewer items to be compared with."""


def nearest(tile: Tile, k: int, *, sets: LabelledSets | None = None, ordered: int = 0) -> Tensor:
    """Gallery indices of the k nearest items of each of the tile's queries, (rows, k) int64; −1 where there are fewer.

    Given the sets with their classes, near-ties behind rank `ordered` are resolved only between relevant and other
    items: among items that are alike, the order changes no metric.
    """
    if tile.comparison.free_of_rounding:
        return torch.cat(
            [_first_existing(tile.similarity[rows], k) for rows in slices(len(tile.rows), _share(tile.rows))]
        )
    width = min(k + (COARSE_SPARE if tile.coarse else SPARE), tile.similarity.shape[1])
    values, columns = leading(tile.similarity, width)
    if not tile.coarse:
        return round_ties(tile.comparison, tile.rows, values, columns, k, sets=sets, ordered=ordered)
    values, uncertain = values.double(), tile.comparison.coarse_tolerance(tile.rows)
    incomplete = (values[:, k - 1] - values[:, -1] <= uncertain[:, 0]) & (width < tile.similarity.shape[1])
    candidate = (values >= values[:, k - 1 : k] - uncertain) & ~incomplete[:, None]
    values, columns = _take_again(tile, values, columns, candidate)
    ranked = round_ties(tile.comparison, tile.rows, values, columns, k, sets=sets, ordered=ordered)
    again = incomplete.nonzero().flatten()
    for some in slices(len(again), _share(tile.rows)):
        ranked[again[some]] = nearest(tile.in_full_precision(again[some]), k, sets=sets, ordered=ordered)
    return ranked


def round_ties(
    comparison: Comparison,
    rows: Tensor,
    values: Tensor,
    columns: Tensor,
    k: int,
    *,
    sets: LabelledSets | None = None,
    ordered: int = 0,
) -> Tensor:
    """The k nearest items as `nearest` ranks them, out of more leading entries (rows, width) by falling value.

    Near-ties are put in order without rounding; rows where they may reach beyond the entries are taken again.
    """
    tolerance = comparison.tolerance(rows, values.dtype)
    incomplete = (values[:, k - 1] - values[:, -1] <= tolerance[:, 0]) & (values.shape[1] < len(comparison.gallery))
    chain = _chains(values, tolerance)
    relevant = None if sets is None else sets.is_relevant(rows, columns)
    doubtful = _of_several(chain) if relevant is None else _of_both_kinds(chain, relevant, ordered)
    doubtful &= (values > -torch.inf) & ~incomplete[:, None]
    columns = _order_exactly(comparison, rows, values, columns, doubtful)
    ranked = columns.masked_fill_(values == -torch.inf, NOBODY)[:, :k]
    again = incomplete.nonzero().flatten()
    for some in slices(len(again), _share(rows)):
        ranked[again[some]] = _first_existing(comparison.exact_rows(rows[again[some]]), k)
    return ranked


def leading(similarity: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Values and columns of the `width` largest entries of each row, falling; as `topk`, in fewer passes.

    Columns are dealt into hands of a few. The `width` hands of the largest maxima hold the `width` largest entries,
    and a maximum over hands is all that has to be read of the others.
    """
    items = similarity.shape[1]
    size = 16 if items >= 256 * width else 8
    hands = items // size
    if hands < 2 * width:
        return similarity.topk(width, dim=1)
    dealt = similarity[:, : hands * size].view(-1, size, hands)
    kept = dealt.amax(dim=1).topk(width, dim=1, sorted=False).indices
    candidates = dealt.gather(2, kept[:, None, :].expand(-1, size, -1)).flatten(1)
    rest = similarity[:, hands * size :]
    values, places = torch.cat([candidates, rest], dim=1).topk(width, dim=1)
    of_hands = places < candidates.shape[1]
    in_hands = places // width * hands + kept.gather(1, places % width)
    return values, torch.where(of_hands, in_hands, places - candidates.shape[1] + hands * size)


def first_k(similarity: Tensor, k: int) -> Tensor:
    """Indices of the k largest entries of each row, equal entries by lower index, also across the k-th rank."""
    least = similarity.topk(k, dim=1).values[:, -1:]
    above, level = similarity > least, similarity == least
    vacant = k - above.sum(dim=1, keepdim=True)
    chosen = above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= vacant))
    columns = chosen.nonzero()[:, 1].view(-1, k)
    return _by_similarity(similarity.gather(1, columns), columns)


def _take_again(tile: Tile, values: Tensor, columns: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
    """The candidates among coarse leading entries, compared in float64 and put in order; −∞ in place of the others."""
    rows, places = (candidate & (values > -torch.inf)).nonzero(as_tuple=True)
    again = torch.full(values.shape, -torch.inf, dtype=torch.float64, device=values.device)
    again[rows, places] = tile.comparison.float64_products(tile.rows[rows], columns[rows, places])
    again, order = again.sort(dim=1, descending=True)
    return again, columns.gather(1, order)


def _share(rows: Tensor) -> int:
    return max(1, len(rows) // EXACT_SHARE)


def _first_existing(similarity: Tensor, k: int) -> Tensor:
    """As `first_k`, with −1 for pairs that are left out."""
    columns = first_k(similarity, k)
    return columns.masked_fill_(similarity.gather(1, columns) == -torch.inf, NOBODY)


def _chains(values: Tensor, tolerance: Tensor) -> Tensor:
    """Number the chains of near-ties along each row of falling values: a gap above the tolerance starts a new one."""
    return pad(values[:, :-1] - values[:, 1:] > tolerance, (1, 0)).cumsum(dim=1)


def _of_several(chain: Tensor) -> Tensor:
    """Which entries share their chain with another."""
    linked = chain[:, :-1] == chain[:, 1:]
    return pad(linked, (0, 1)) | pad(linked, (1, 0))


def _of_both_kinds(chain: Tensor, relevant: Tensor, ordered: int) -> Tensor:
    """Which entries share their chain with one of the other kind, or within the first `ordered` ranks with any."""
    several = _of_several(chain)
    both = several & (_any_in_chain(chain, relevant) & _any_in_chain(chain, ~relevant))
    return both | (several & (chain <= chain[:, ordered - 1 : ordered])) if ordered else both


def _any_in_chain(chain: Tensor, marked: Tensor) -> Tensor:
    found = torch.zeros_like(marked).scatter_reduce_(1, chain, marked, "amax")
    return found.gather(1, chain)


def _order_exactly(comparison: Comparison, rows: Tensor, values: Tensor, columns: Tensor, doubtful: Tensor) -> Tensor:
    """The ranked columns in order after the similarities of the doubtful entries were taken again.

    float64 settles all but true ties cheaply, so it goes first where the values have less.
    """
    columns = columns.clone()
    some = doubtful.any(dim=1).nonzero().flatten()
    if not len(some):
        return columns
    queries = rows[some]
    some_values, some_columns, doubtful = values[some].double(), columns[some], doubtful[some]

    def take_again(products: Callable[[Tensor, Tensor], Tensor]) -> None:
        some_values[doubtful] = products(queries[doubtful.nonzero()[:, 0]], some_columns[doubtful])

    if values.dtype != torch.float64:
        take_again(comparison.float64_products)
        some_values, order = some_values.sort(dim=1, descending=True)
        some_columns, doubtful = some_columns.gather(1, order), doubtful.gather(1, order)
        doubtful &= _of_several(_chains(some_values, comparison.tolerance(queries, torch.float64)))
    take_again(comparison.exact_products)
    ascending, order = some_columns.sort(dim=1)
    columns[some] = _by_similarity(some_values.gather(1, order), ascending)
    return columns


def _by_similarity(values: Tensor, ascending_columns: Tensor) -> Tensor:
    """Columns by falling value; they come in ascending order, which a stable sort keeps among equals."""
    return ascending_columns.gather(1, values.argsort(dim=1, descending=True, stable=True))
