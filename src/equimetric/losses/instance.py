"""Instance loss: every sample is a class of its own."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat, RowReduction
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform


@loss(
    "instance",
    title="Instance",
    family="ranking",
    separable=True,
    paper="Zheng et al.: Dual-path convolutional image-text embeddings with instance loss (2020)",
    references=("batch", "memory"),
    search={"gamma": LogUniform(1.0, 128.0)},
)
def instance(
    pairs: Pairs, *, gamma: PositiveFloat = 64.0, include_query: bool = False, reduction: RowReduction = "mean"
) -> Tensor:
    """Recognise the instance of each sample among the others: samples with one label are views of one instance.

    L = mean_i −log( Σ_{j: y_j = y_i} e^{γ s_ij} / Σ_j e^{γ s_ij} ), γ = `gamma`, without the query itself, over queries
    with positives; `include_query` counts it in both sums, at s = 1, as the authors' code does: every sample is then
    also a class of its own, and no label need occur twice. With weights that are learned, one per instance, as in the
    paper, it is `normalized_softmax` with as many classes as there are instances.
    """
    if include_query:
        pairs = pairs.add_query(torch.ones_like(pairs.similarity[:, 0]), positive=True)
    return ops.cross_entropy(gamma * pairs.similarity, pairs, reduction=reduction)
