"""A loss of one's own, for own_loss.toml beside it."""

import torch

import equimetric as em
from equimetric import ops
from equimetric.search_space import Uniform


@em.loss(
    "squared_threshold",
    title="Squared threshold",
    family="ranking",
    separable=True,
    paper="You: your paper",
    search={"threshold": Uniform(0.0, 1.0)},
)
def squared_threshold(pairs: em.Pairs, *, threshold: float = 0.5) -> torch.Tensor:
    """L = mean_{positives} [threshold − s]₊² + mean_{negatives} [s − threshold]₊²"""
    pull = ops.mean((threshold - pairs.similarity).relu().square(), pairs.positive, pairs.weight)
    push = ops.mean((pairs.similarity - threshold).relu().square(), pairs.negative, pairs.weight)
    return pull + push
