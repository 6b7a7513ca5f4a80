"""Soft histograms of pairs."""

from torch import Tensor

from equimetric.ops.reductions import weigh
from equimetric.pairs import Pairs

__all__ = ["soft_histograms"]


def soft_histograms(pairs: Pairs, position: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """(Q, nodes) how much of each row's positives, and of its negatives, lies at the nodes 0, 1, … nodes − 1.

    A pair at position t counts [1 − |t − l|]₊ at node l: it is shared between the two nodes around it, so two
    scatters over the (Q, R) pairs do, however many nodes there are. Positions beyond the ends count at the ends.
    """
    position = position.clamp(0, nodes - 1)
    # Clamped as whole numbers: NaN is one, far outside.
    below = position.detach().long().clamp_(0, nodes - 2)
    upper_weight = position - below
    node = below + nodes * pairs.negative
    counts = position.new_zeros(len(position), 2 * nodes)
    counts = counts.scatter_add(1, node, weigh(1 - upper_weight, pairs.mask, pairs.weight))
    counts = counts.scatter_add(1, node + 1, weigh(upper_weight, pairs.mask, pairs.weight))
    return counts[:, :nodes], counts[:, nodes:]
