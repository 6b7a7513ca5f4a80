"""Histogram loss, and the soft histograms of pairs that it shares with FastAP."""

from functools import partial
from typing import Annotated

from torch import Tensor

from equimetric.components import loss
from equimetric.ops.chunks import compute_chunked
from equimetric.ops.reductions import ratio, weigh
from equimetric.option_values import Range
from equimetric.pairs import Pairs
from equimetric.search_space import Integer

__all__ = ["histogram", "soft_histograms"]


def soft_histograms(pairs: Pairs, position: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """(Q, nodes) how much of each row's positives, and of its negatives, lies at the nodes 0, 1, … nodes − 1.

    A pair at position t counts [1 − |t − l|]₊ at node l: it is shared between the two nodes around it, so two
    scatters over the (Q, R) pairs do, however many nodes there are. Positions beyond the ends count at the ends.
    """
    position = position.clamp(0, nodes - 1)
    below = position.detach().floor().clamp_max(nodes - 2)
    share = position - below
    node = below.long() + nodes * pairs.negative
    counts = position.new_zeros(len(position), 2 * nodes)
    counts = counts.scatter_add(1, node, weigh(1 - share, pairs.any, pairs.weight))
    counts = counts.scatter_add(1, node + 1, weigh(share, pairs.any, pairs.weight))
    return counts[:, :nodes], counts[:, nodes:]


@loss(
    "histogram",
    title="Histogram",
    family="ranking",
    paper="Ustinova, Lempitsky: Learning deep embeddings with histogram loss (2016)",
    search={"num_nodes": Integer(33, 201)},
)
def histogram(pairs: Pairs, *, num_nodes: Annotated[int, Range(2)] = 101) -> Tensor:
    """The probability that a random negative pair is more similar than a random positive pair.

    h^±_r = mean over pairs of [1 − |s − t_r|/Δ]₊ at the nodes t_r = −1 + rΔ, Δ = 2/(num_nodes − 1);
    L = Σ_r h⁻_r Σ_{q≤r} h⁺_q.
    """
    return compute_chunked(partial(overlap, num_nodes=num_nodes), pairs)


def overlap(pairs: Pairs, *, num_nodes: int) -> Tensor:
    """Σ_r h⁻_r Σ_{q≤r} h⁺_q."""
    by_row = soft_histograms(pairs, (pairs.similarity + 1) * ((num_nodes - 1) / 2), num_nodes)
    # The counts of all nodes add up to the number of pairs, whatever the similarities.
    positive, negative = (ratio(counts.sum(0), counts.sum().detach()) for counts in by_row)
    return (negative * positive.cumsum(0)).sum()
