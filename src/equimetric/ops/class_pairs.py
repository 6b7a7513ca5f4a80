"""One (anchor, positive) pair per class, as the N-pairs loss takes them."""

from typing import NamedTuple

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.ops.masks import has_any
from equimetric.ops.products import is_tracing
from equimetric.ops.reductions import mean, reduce_rows
from equimetric.ops.require import queries
from equimetric.ops.rows import uses_plain_sum
from equimetric.pairs import Pairs

__all__ = ["FirstPairs", "first_pairs"]


class FirstPairs(NamedTuple):
    """N pairs, one per class. Where shapes cannot depend on data, as in a compiled graph, one for every query."""

    anchor: Tensor
    """(N,) rows."""
    positive: Tensor
    """(N,) columns."""
    is_pair: Tensor
    """(N,) bool: whether an entry is such a pair."""
    competes: Tensor
    """(N, N) bool: [i, j] where the positive of pair j is one of the negatives of anchor i."""

    def logits(self, similarity: Tensor) -> Tensor:
        """(N, N) similarities of anchors and positives."""
        return similarity.index_select(0, self.anchor).index_select(1, self.positive)

    def reduce(self, values: Tensor, mask: Tensor, queries: int, reduction: str) -> Tensor:
        """Reduce (N,) values of the pairs in `mask` as values of their anchors among this many queries."""
        # The plain mean does not ask which queries the values are of.
        if reduction == "mean" and uses_plain_sum():
            return mean(values, mask)
        by_query = values.new_zeros(queries).index_add(0, self.anchor, torch.where(mask, values, 0.0))
        valid = torch.zeros_like(by_query, dtype=torch.bool).index_put((self.anchor,), mask)
        return reduce_rows(by_query, valid, reduction)


def first_pairs(pairs: Pairs, loss: str) -> FirstPairs:
    """List one (anchor, positive) per class: its first row that has a positive, and that row's first positive.

    A reference that is repeated is not chosen again.
    """
    labels = queries(pairs, loss).labels
    if labels is None:
        raise EquimetricError(f"loss {loss!r} takes one pair per class; give one class id per sample as labels")
    has_positive = has_any(pairs.positive)
    earlier = (labels[:, None] == labels).tril_(-1) & has_positive
    is_anchor = has_positive & ~has_any(earlier)
    anchor = torch.arange(len(labels), device=labels.device)
    if not is_tracing():
        anchor = anchor[is_anchor]
    rows, is_pair = pairs.negative.index_select(0, anchor), is_anchor[anchor]
    positive = pairs.positive.index_select(0, anchor).view(torch.uint8).argmax(1)
    return FirstPairs(anchor, positive, is_pair, rows.index_select(1, positive) & is_pair)
