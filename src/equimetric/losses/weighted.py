"""A loss given by pair weights alone, to which every pair-based loss reduces."""

from collections.abc import Callable

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.errors import EquimetricError
from equimetric.pairs import Pairs


def equal_weight(pairs: Pairs) -> Tensor:
    """Weight 1 for every pair."""
    return torch.ones_like(pairs.similarity)


@loss(
    "weighted",
    title="Weighted pairs",
    family="ranking",
    per_query=True,
    paper="Anonymous: A unified view of deep metric learning via gradient analysis (2019)",
    geometry=("cosine", "euclidean", "sqeuclidean", "dot"),
)
def weighted(pairs: Pairs, *, weights: Callable[[Pairs], Tensor] = equal_weight) -> Tensor:
    """Push negatives and pull positives with weights given by a function of the pairs.

    L = 1/B Σ_i { Σ_{k∈N_i} w_ik s_ik − Σ_{j∈P_i} w_ij s_ij }, w held constant. With the weights
    w_ij = ∓B ∂H/∂s_ij of another loss H, − for positives, it has the gradient of H: see `equimetric.pair_weights`.
    """
    with torch.no_grad():
        weight = weights(pairs)
    if not isinstance(weight, Tensor) or weight.shape != pairs.similarity.shape:
        description = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise EquimetricError(f"weights must be a tensor of shape {tuple(pairs.similarity.shape)}, got {description}")
    force = weight * pairs.similarity
    pull = ops.row_sum(force, pairs.positive, pairs.weight)
    push = ops.row_sum(force, pairs.negative, pairs.weight)
    return ops.mean(push - pull)
