"""Histogram loss."""

from typing import Annotated

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import Range
from equimetric.pairs import Pairs
from equimetric.search_space import Integer


@loss(
    "histogram",
    title="Histogram",
    family="ranking",
    separable=True,
    paper="Ustinova, Lempitsky: Learning deep embeddings with histogram loss (2016)",
    search={"num_nodes": Integer(33, 201)},
)
def histogram(pairs: Pairs, *, num_nodes: Annotated[int, Range(2)] = 101) -> Tensor:
    """Minimize the probability that a random negative pair is more similar than a random positive pair.

    h^±_r = mean over pairs of [1 − |s − t_r|/Δ]₊ at the nodes t_r = −1 + rΔ, Δ = 2/(num_nodes − 1);
    L = Σ_r h⁻_r Σ_{q≤r} h⁺_q.
    """
    by_row = ops.special.soft_histograms(pairs, (pairs.similarity + 1) * ((num_nodes - 1) / 2), num_nodes)
    # The counts of all nodes add up to the number of pairs, whatever the similarities.
    positive, negative = (
        ops.special.ratio(counts, counts.sum(-1, keepdim=True).detach()) for counts in map(ops.special.sum_rows, by_row)
    )
    return (negative * positive.cumsum(-1)).sum(-1)
